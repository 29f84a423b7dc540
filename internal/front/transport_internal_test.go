package front

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
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

// TestBodyOfAByteAMinute: a client that sends, but next to nothing, ends like
// one that stalls; what the daemon itself takes its time for does not count.
func TestBodyOfAByteAMinute(t *testing.T) {
	for _, tt := range []struct {
		name   string
		taken  int64
		waited time.Duration
		slow   bool
	}{
		{"at the start", 0, 0, false},
		{"a byte a minute", 2, 2 * stallTimeout, true},
		{"a slow line", 600 * minBodyRate, 10 * time.Minute, false},
		{"slower than that", 600 * minBodyRate, 12 * time.Minute, true},
	} {
		b := &body{
			ReadCloser: io.NopCloser(endless{}), control: http.NewResponseController(httptest.NewRecorder()),
			taken: tt.taken, waited: tt.waited,
		}
		if _, err := b.Read(make([]byte, 1)); errors.Is(err, errs.Timeout) != tt.slow {
			t.Errorf("%s: %v, want a timeout: %v", tt.name, err, tt.slow)
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
