package sse

import (
	"bytes"
	"encoding/json"

	"github.com/cubbyhq/cubby/internal/kernel"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// largestRich bounds a line of rich output that is put together here: what an
// agent may send, with room for how JSON writes it.
const largestRich = 24 << 20

// richLines puts the lines of a cell's rich output together again, which the
// journal keeps in pieces. A line whose pieces do not follow one another (a cap
// ended it, or a reader began in its middle) and what is not a JSON object is
// left out: what a sandbox says must not be able to write events of its own.
type richLines struct {
	held []byte
	next int64 // the offset after held
	skip bool  // the line is given up; its end has not come
}

// richLine is a whole line with the offset after its line break.
type richLine struct {
	JSON json.RawMessage
	Next int64
}

// add returns the lines that o ends.
func (r *richLines) add(o sandbox.Output) []richLine {
	if o.Offset != r.next {
		r.held, r.skip = nil, false
	}
	var out []richLine
	data, at := o.Data, o.Offset
	for len(data) > 0 {
		part, rest, whole := bytes.Cut(data, []byte("\n"))
		at += int64(len(data) - len(rest))
		switch {
		case r.skip:
		case len(r.held)+len(part) > largestRich:
			r.held, r.skip = nil, true
		default:
			r.held = append(r.held, part...)
		}
		if whole {
			if line, ok := oneObject(r.held); ok && !r.skip {
				out = append(out, richLine{line, at})
			}
			r.held, r.skip = nil, false
		}
		data = rest
	}
	r.next = at
	return out
}

// oneObject is the line as one JSON object without line breaks, in UTF-8.
func oneObject(line []byte) (json.RawMessage, bool) {
	if len(line) == 0 || line[0] != '{' || kernel.Nesting(line) > kernel.MaxNesting {
		return nil, false
	}
	var b bytes.Buffer
	if err := json.Compact(&b, bytes.ToValidUTF8(line, []byte("\uFFFD"))); err != nil {
		return nil, false
	}
	return b.Bytes(), true
}
