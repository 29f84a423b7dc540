// Package sse writes answers of Server-Sent Events: one event per line of JSON,
// flushed at once, with pings while there is nothing to say, and output of
// commands whose characters and lines are whole. It refuses what a sandbox
// prints a say in the stream: every event is named by its caller. What events
// there are, and when a stream ends, is up to the doors.
package sse

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/cubbyhq/cubby/internal/front"
)

// MediaType is that of an answer of events.
const MediaType = "text/event-stream"

// PingEvery keeps proxies and clients from giving up a quiet stream.
const PingEvery = 15 * time.Second

// NoID leaves out the id of an event: clients do not resume after it.
const NoID = -1

// largestKept is the largest buffer that a quiet stream keeps.
const largestKept = 16 << 10

// Stream writes events to one client. Methods are called from one goroutine.
type Stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buf     bytes.Buffer
}

// New begins an answer of the given status.
func New(w http.ResponseWriter, status int) (*Stream, error) {
	h := w.Header()
	h.Set("Content-Type", MediaType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(status)
	s := &Stream{w: w, control: http.NewResponseController(w)}
	return s, s.control.Flush()
}

// Send writes one event and flushes it.
func (s *Stream) Send(id int64, name string, data any) error {
	b := &s.buf
	if b.Reset(); b.Cap() > largestKept {
		*b = bytes.Buffer{}
	}
	err := encode(b, id, name, data)
	return s.SendEncoded(b.Bytes(), err)
}

// Encode returns an event as it is sent, for all streams that send the same.
func Encode(id int64, name string, data any) ([]byte, error) {
	var b bytes.Buffer
	err := encode(&b, id, name, data)
	return b.Bytes(), err
}

// SendEncoded writes what [Encode] made, if it did, and flushes it.
func (s *Stream) SendEncoded(event []byte, err error) error {
	if err := s.WriteEncoded(event, err); err != nil {
		return err
	}
	return s.control.Flush()
}

// WriteEncoded is [Stream.SendEncoded] of an event that another one follows at once: it
// is flushed with that.
func (s *Stream) WriteEncoded(event []byte, err error) error {
	if err == nil {
		_, err = s.w.Write(event)
	}
	return err
}

func encode(b *bytes.Buffer, id int64, name string, data any) error {
	if id >= 0 {
		b.WriteString("id: ")
		b.Write(strconv.AppendInt(b.AvailableBuffer(), id, 10))
		b.WriteByte('\n')
	}
	b.WriteString("event: " + name + "\ndata: ")
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(data); err != nil { // one line, with its end
		return err
	}
	b.WriteByte('\n')
	return nil
}

// SendData writes one event of a dialect whose ids are texts, data being JSON on one
// line, and flushes it.
func (s *Stream) SendData(id, name string, data []byte) error {
	// What is long is not copied once more.
	for _, part := range [][]byte{[]byte("event: " + name + "\ndata: "), data, []byte("\nid: " + id + "\n\n")} {
		if _, err := s.w.Write(part); err != nil {
			return err
		}
	}
	return s.control.Flush()
}

// Comment writes a line that is no event, and no end of one.
func (s *Stream) Comment(text string) error {
	if _, err := io.WriteString(s.w, ": "+text+"\n"); err != nil {
		return err
	}
	return s.control.Flush()
}

// Ping writes an event that says nothing.
func (s *Stream) Ping() error { return s.Send(NoID, "ping", struct{}{}) }

// Fail writes an error that came after the answer had begun, as its last event.
func (s *Stream) Fail(ctx context.Context, err error) {
	_, p := front.ProblemOf(ctx, err)
	_ = s.Send(NoID, "error", p) // the client is gone: nobody is left to tell
}
