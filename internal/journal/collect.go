package journal

import (
	"context"
	"iter"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Caps bound what Collect returns of each stream: that many of its first
// bytes; less than 0 is all.
type Caps struct {
	Stdout, Stderr, Rich int64
	// Hold bounds stdout and stderr together: what would be more is only
	// measured, and read by [Journals.ReadStream]. 0 is no bound.
	Hold int64
	// Ends: stdout and stderr that are longer than their bounds keep one half of that
	// from the beginning and the other from the end. It does not go with Hold.
	Ends bool
}

// Collected is a log in memory. The counts of cut bytes include what the log
// itself did not keep.
type Collected struct {
	Stdout, Stderr, Rich          []byte
	StdoutEnd, StderrEnd          []byte // with [Caps.Ends], what the log has last of a stream that is cut
	StdoutCut, StderrCut, RichCut int64
	Exit                          *sandbox.Exit // nil: not finished, or torn by a crash

	// Measured: stdout and stderr are more than what is to be held.
	Measured               bool
	StdoutSize, StderrSize Size
}

// Size is how much of a stream the caps let through.
type Size struct {
	Bytes int64
	UTF8  bool // they are text
}

// capped is what is taken of a stream.
type capped struct {
	data  []byte
	bytes int64
	cut   int64
	torn  []byte // the beginning of a character
	other bool   // not UTF-8

	end []byte // the bytes after data, the last ones
}

func (k *capped) take(data []byte, limit int64, hold bool) {
	if n := limit - k.bytes; limit >= 0 && n < int64(len(data)) {
		k.cut += int64(len(data)) - n
		data = data[:n]
	}
	k.bytes += int64(len(data))
	if hold {
		k.data = append(k.data, data...)
	}
	if !k.other {
		k.look(data)
	}
}

// takeEnds is take for a reader that wants both ends.
func (k *capped) takeEnds(data []byte, limit int64) {
	if limit < 0 {
		k.take(data, limit, true)
		return
	}
	first := min(limit-limit/2-int64(len(k.data)), int64(len(data)))
	k.data = append(k.data, data[:first]...)
	k.end = append(k.end, data[first:]...)
	// It is moved seldom, not for every piece.
	if excess := int64(len(k.end)) - limit/2; excess > max(limit/2, 64<<10) {
		k.dropFirst(excess)
	}
}

// dropFirst leaves out bytes between the beginning and the end.
func (k *capped) dropFirst(n int64) {
	k.cut += n
	k.end = append(k.end[:0], k.end[n:]...)
}

// finish makes of the end what the bound leaves: a stream that is whole has none.
func (k *capped) finish(limit int64) {
	if excess := int64(len(k.end)) - limit/2; excess > 0 {
		k.dropFirst(excess)
	}
	if k.cut == 0 {
		k.data, k.end = append(k.data, k.end...), nil
	}
}

// look goes on with the question whether it is all UTF-8.
func (k *capped) look(data []byte) {
	for len(k.torn) > 0 && len(data) > 0 && !utf8.FullRune(k.torn) {
		k.torn, data = append(k.torn, data[0]), data[1:]
	}
	if utf8.FullRune(k.torn) {
		k.other = !utf8.Valid(k.torn)
		k.torn = nil
	}
	if len(k.torn) > 0 || k.other {
		return
	}
	end := len(data)
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		if utf8.RuneStart(data[len(data)-n]) {
			if !utf8.FullRune(data[len(data)-n:]) {
				end = len(data) - n
			}
			break
		}
	}
	k.other = !utf8.Valid(data[:end])
	k.torn = append(k.torn, data[end:]...)
}

func (k *capped) size() Size { return Size{Bytes: k.bytes, UTF8: !k.other && len(k.torn) == 0} }

// Collect reads what a log has now. Its errors are those of Read.
func (j *Journals) Collect(ctx context.Context, uid sandbox.UID, seq int64, caps Caps) (Collected, error) {
	src, err := j.source(uid, seq)
	if err != nil {
		return Collected{}, err
	}
	defer src.close()
	src.reuse = true // all that stays is copied
	var c Collected
	var stdout, stderr, rich capped
	err = src.read(ctx, 0, false, func(e Entry, _ error) bool {
		switch {
		case e.Exit != nil:
			c.Exit = e.Exit
		case caps.Ends && e.Output.Stream == sandbox.Stderr:
			stderr.takeEnds(e.Output.Data, caps.Stderr)
		case caps.Ends && e.Output.Stream == sandbox.Stdout:
			stdout.takeEnds(e.Output.Data, caps.Stdout)
		case e.Output.Stream == sandbox.Stderr:
			stderr.take(e.Output.Data, caps.Stderr, !c.Measured)
		case e.Output.Stream == sandbox.Rich:
			rich.take(e.Output.Data, caps.Rich, true)
		default:
			stdout.take(e.Output.Data, caps.Stdout, !c.Measured)
		}
		if caps.Hold > 0 && !c.Measured && stdout.bytes+stderr.bytes > caps.Hold {
			c.Measured, stdout.data, stderr.data = true, nil, nil
		}
		return true
	})
	if err != nil {
		return Collected{}, err
	}
	if caps.Ends {
		stdout.finish(caps.Stdout)
		stderr.finish(caps.Stderr)
		c.StdoutEnd, c.StderrEnd = stdout.end, stderr.end
	}
	c.Stdout, c.Stderr, c.Rich = stdout.data, stderr.data, rich.data
	c.StdoutCut, c.StderrCut, c.RichCut = stdout.cut, stderr.cut, rich.cut
	if c.Measured {
		c.StdoutSize, c.StderrSize = stdout.size(), stderr.size()
	}
	var cut, stderrCut, richCut int64
	switch {
	case c.Exit != nil:
		cut, stderrCut, richCut = c.Exit.StdoutCut, c.Exit.StderrCut, c.Exit.RichCut
	case src.log != nil:
		cut, stderrCut, richCut = src.log.Cut()
	}
	// What the log did not keep came last: it has no end to show then.
	if cut > 0 {
		c.StdoutCut, c.StdoutEnd = c.StdoutCut+int64(len(c.StdoutEnd)), nil
	}
	if stderrCut > 0 {
		c.StderrCut, c.StderrEnd = c.StderrCut+int64(len(c.StderrEnd)), nil
	}
	c.StdoutCut += cut
	c.StderrCut += stderrCut
	c.RichCut += richCut
	return c, nil
}

// ReadStream returns the first bytes of one stream of a log, piece by piece. It
// is errs.NotFound when the log was pruned, also while it is read, and
// errs.Unavailable when there are not so many any more.
func (j *Journals) ReadStream(ctx context.Context, uid sandbox.UID, seq int64, stream sandbox.Stream, bytes int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if bytes == 0 {
			return
		}
		for e, err := range j.Read(ctx, uid, seq, 0, false) {
			if err != nil {
				yield(nil, err)
				return
			}
			if e.Exit != nil {
				break
			}
			if e.Output.Stream != stream {
				continue
			}
			data := e.Output.Data[:min(bytes, int64(len(e.Output.Data)))]
			bytes -= int64(len(data))
			if !yield(data, nil) || bytes == 0 {
				return
			}
		}
		yield(nil, errs.E(errs.Unavailable, "the output was removed while it was read"))
	}
}
