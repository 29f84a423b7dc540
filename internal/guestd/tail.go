package guestd

import (
	"bytes"
	"context"
	"os"
	"strings"
	"sync"
	"time"
)

// tail keeps the end of what a kernel itself prints.
type tail struct {
	done chan struct{} // closed at the end

	mu   sync.Mutex
	last []byte
}

const tailSize = 4 << 10

// follow reads until the end, so that nothing ever waits.
func (t *tail) follow(ctx context.Context, f *os.File) {
	defer close(t.done)
	defer f.Close()
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, tailSize)
	for {
		n, err := f.Read(buf)
		t.mu.Lock()
		t.last = append(t.last, buf[:n]...)
		if over := len(t.last) - tailSize; over > 0 {
			t.last = append(t.last[:0], t.last[over:]...)
		}
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// text is the last lines, at most 2000 bytes.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.last
	if over := len(b) - 1800; over > 0 {
		b = b[over:]
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			b = b[i+1:]
		}
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(b), "\uFFFD"))
}
