package sse

import (
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// joiner keeps characters whole: output is cut into pieces anywhere, and half
// a character would turn a whole piece of text into base64. It holds back at
// most the first bytes of one character, and only while what follows may
// complete it.
type joiner struct {
	held sandbox.Output
}

// add returns the pieces to send after o arrived.
func (j *joiner) add(o sandbox.Output) []sandbox.Output {
	var out []sandbox.Output
	if len(j.held.Data) > 0 {
		if j.held.Stream == o.Stream && j.held.Offset+int64(len(j.held.Data)) == o.Offset {
			o.Data = append(j.held.Data, o.Data...)
			o.Offset = j.held.Offset
		} else {
			out = append(out, j.held)
		}
		j.held = sandbox.Output{}
	}
	if n := front.PartialRune(o.Data); n > 0 {
		cut := len(o.Data) - n
		j.held = o
		j.held.Data = append([]byte(nil), o.Data[cut:]...)
		j.held.Offset = o.Offset + int64(cut)
		o.Data = o.Data[:cut]
	}
	if len(o.Data) > 0 {
		out = append(out, o)
	}
	return out
}

// flush returns what was held back, when nothing came to complete it.
func (j *joiner) flush() []sandbox.Output {
	held := j.held
	j.held = sandbox.Output{}
	if len(held.Data) == 0 {
		return nil
	}
	return []sandbox.Output{held}
}
