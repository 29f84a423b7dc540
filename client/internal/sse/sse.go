// Package sse reads streams of Server-Sent Events. It knows nothing of what the
// events say, and does not reconnect.
package sse

import (
	"bufio"
	"bytes"
	"io"
)

// Event is one Server-Sent Event.
type Event struct {
	ID   string
	Name string
	Data []byte
}

// Reader parses text/event-stream.
type Reader struct{ r *bufio.Reader }

// NewReader returns a Reader of a stream.
func NewReader(r io.Reader) *Reader { return &Reader{bufio.NewReaderSize(r, 64<<10)} }

// Next returns the next event that has a name or data. An event that was cut
// by the end of the stream is dropped: it will come again after a resume.
func (r *Reader) Next() (Event, error) {
	var ev Event
	some := false
	for {
		line, err := r.r.ReadBytes('\n')
		if err != nil {
			return Event{}, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			if some {
				return ev, nil
			}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "id":
			ev.ID = string(value)
		case "event":
			ev.Name, some = string(value), true
		case "data":
			if ev.Data != nil {
				ev.Data = append(ev.Data, '\n')
			}
			ev.Data, some = append(ev.Data, value...), true
		}
	}
}
