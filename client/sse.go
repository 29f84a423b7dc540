package client

import (
	"bufio"
	"bytes"
	"io"
)

// event is one Server-Sent Event.
type event struct {
	id   string
	name string
	data []byte
}

// eventReader parses text/event-stream.
type eventReader struct{ r *bufio.Reader }

func newEventReader(r io.Reader) *eventReader {
	return &eventReader{bufio.NewReaderSize(r, 64<<10)}
}

// next returns the next event that has a name or data. An event that was cut
// by the end of the stream is dropped: it will come again after a resume.
func (er *eventReader) next() (event, error) {
	var ev event
	some := false
	for {
		line, err := er.r.ReadBytes('\n')
		if err != nil {
			return event{}, err
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
			ev.id = string(value)
		case "event":
			ev.name, some = string(value), true
		case "data":
			if ev.data != nil {
				ev.data = append(ev.data, '\n')
			}
			ev.data, some = append(ev.data, value...), true
		}
	}
}
