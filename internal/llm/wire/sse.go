package wire

import (
	"bytes"
	"errors"
	"io"
)

// Event is one of a stream. Data is valid until the next one is read.
type Event struct {
	Name string
	Data []byte
}

var (
	errLine   = errors.New("a line of the stream is too long")
	errStream = errors.New("the stream is too long")
	errRoom   = errors.New("there is no room for a line this long")
)

// Reader reads Server-Sent Events. It takes any of the three ends of a line, and an
// event at the end of a stream for whole without the empty line that should follow.
type Reader struct {
	from       io.Reader
	buf        []byte
	start, end int // of what is in buf and not read yet
	searched   int // how far behind start no line ends
	left       int // how much of the stream may still come
	room       *Room
	held       int64 // of the room
	skip       bool
	began      bool // a byte of the stream has been seen
	eof        error

	name string
	data []byte

	stray []byte // lines that are no fields of an event, up to maxFault
}

// NewReader returns a reader of a stream.
func NewReader(from io.Reader) *Reader {
	return &Reader{from: from, buf: make([]byte, 16<<10), left: maxStream}
}

// Next returns the next event, or io.EOF after the last one.
func (r *Reader) Next() (Event, error) {
	r.name, r.data = "", r.data[:0]
	some := false
	for {
		line, err := r.line()
		if err != nil {
			if errors.Is(err, io.EOF) && some {
				return r.event(), nil
			}
			return Event{}, err
		}
		if len(line) == 0 {
			if some {
				return r.event(), nil
			}
			r.name = ""
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			if len(r.data)+len(value) > maxLine {
				return Event{}, errLine
			}
			if more := len(r.data) + len(value) + 1 - cap(r.data); more > 0 && !r.grow(more) {
				return Event{}, errRoom
			}
			r.data = append(append(r.data, value...), '\n')
			some = true
		case "event":
			r.name = string(value)
		case "", "id", "retry":
		default:
			if len(r.stray)+len(line) < maxFault {
				r.stray = append(append(r.stray, line...), '\n')
			}
		}
	}
}

// Stray returns what came between events and is none: a server that fails in the middle
// of a stream may write what is wrong as it would write it in an answer of its own.
func (r *Reader) Stray() []byte { return r.stray }

func (r *Reader) event() Event {
	return Event{r.name, r.data[:len(r.data)-1]}
}

// line returns the next line without its end, valid until the next call. What
// follows the last end of a line is a line too.
func (r *Reader) line() ([]byte, error) {
	for {
		rest := r.buf[r.start:r.end]
		if r.skip && len(rest) > 0 {
			// The line feed of a CR that ended a line.
			if rest[0] == '\n' {
				r.start++
				rest = rest[1:]
			}
			r.skip = false
		}
		if i := lineEnd(rest[r.searched:]); i >= 0 {
			i += r.searched
			r.skip = rest[i] == '\r'
			r.start += i + 1
			r.searched = 0
			return r.first(rest[:i]), nil
		}
		r.searched = len(rest)
		if r.eof != nil {
			if len(rest) == 0 {
				return nil, r.eof
			}
			r.start, r.searched = r.end, 0
			if !errors.Is(r.eof, io.EOF) {
				return nil, r.eof
			}
			return r.first(rest), nil
		}
		switch {
		case len(rest) > maxLine:
			return nil, errLine
		case len(rest) == len(r.buf) && !r.grow(len(r.buf)):
			return nil, errRoom
		}
		r.fill()
	}
}

// lineEnd returns where the first line feed or carriage return is, or -1.
func lineEnd(b []byte) int {
	i := bytes.IndexByte(b, '\n')
	if i >= 0 {
		b = b[:i]
	}
	if j := bytes.IndexByte(b, '\r'); j >= 0 {
		return j
	}
	return i
}

// first takes the mark of the byte order from the first line.
func (r *Reader) first(line []byte) []byte {
	if !r.began {
		r.began = true
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	return line
}

// fill reads more, and makes room for it first.
func (r *Reader) fill() {
	if r.start > 0 {
		copy(r.buf, r.buf[r.start:r.end])
		r.start, r.end = 0, r.end-r.start
	}
	if r.end == len(r.buf) {
		more := make([]byte, 2*len(r.buf))
		copy(more, r.buf)
		r.buf = more
	}
	n, err := r.from.Read(r.buf[r.end:])
	r.end += n
	r.left -= n
	switch {
	case err != nil:
		r.eof = err
	case r.left < 0:
		r.eof = errStream
	}
}

// grow takes room for more of a buffer, and reports whether there is any.
func (r *Reader) grow(n int) bool {
	if !r.room.take(int64(n)) {
		return false
	}
	r.held += int64(n)
	return true
}

// Close gives the reader's room back. It does not close what it reads from.
func (r *Reader) Close() {
	r.room.take(-r.held)
	r.held = 0
}
