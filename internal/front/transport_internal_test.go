package front

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// clock notes the write deadlines that are set.
type clock struct {
	http.ResponseWriter
	deadline time.Time
}

func (c *clock) SetWriteDeadline(t time.Time) error { c.deadline = t; return nil }

// With HTTP/2 a deadline that passes ends a stream, whether or not anything is
// being written: between writes there is none.
func TestQuietStreamsHaveNoDeadline(t *testing.T) {
	for major, quiet := range map[int]bool{1: false, 2: true} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.ProtoMajor = major
		c := &clock{ResponseWriter: httptest.NewRecorder()}
		w := newResponse(c, r)
		for step, act := range map[string]func(){"write": func() { _, _ = w.Write([]byte("x")) }, "flush": w.Flush} {
			if act(); c.deadline.IsZero() != quiet {
				t.Errorf("HTTP/%d: after a %s the deadline is %v", major, step, c.deadline)
			}
		}
	}
}
