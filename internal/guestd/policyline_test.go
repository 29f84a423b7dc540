package guestd

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// policyHost answers questions about names as the host does, and counts them.
type policyHost struct {
	mu    sync.Mutex
	asked map[string]int
	open  []net.Conn
}

func (h *policyHost) serve(t *testing.T, l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		h.mu.Lock()
		h.open = append(h.open, conn)
		h.mu.Unlock()
		go func() {
			lines := bufio.NewScanner(conn)
			if !lines.Scan() || !strings.HasSuffix(lines.Text(), " "+kindResolve) {
				t.Errorf("a stream begins with %q", lines.Text())
			}
			for lines.Scan() {
				name := lines.Text()
				h.mu.Lock()
				h.asked[name]++
				h.mu.Unlock()
				answer := "allow " + strings.ToLower(name)
				if strings.HasPrefix(name, "bad.") {
					answer = "deny it is bad"
				}
				_, _ = fmt.Fprintln(conn, answer)
			}
		}()
	}
}

// hangUp ends every stream, as a change of the policy does.
func (h *policyHost) hangUp() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, conn := range h.open {
		conn.Close()
	}
	h.open = nil
}

func (h *policyHost) questions(name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked[name]
}

// TestPolicyLineAsksOnce: a name that was allowed is asked about once on a
// stream, one that was denied each time, and nothing outlives the stream.
func TestPolicyLineAsksOnce(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	h := &policyHost{asked: make(map[string]int)}
	var serving sync.WaitGroup
	serving.Go(func() { h.serve(t, l) })
	line := &policyLine{up: newUplink(socket, "s", slog.New(slog.DiscardHandler))}
	t.Cleanup(func() {
		line.mu.Lock()
		if line.conn != nil {
			line.drop()
		}
		line.mu.Unlock()
		l.Close()
		h.hangUp()
		serving.Wait()
	})
	ask := func(name string, allow bool) {
		t.Helper()
		v, err := line.ask(t.Context(), name)
		if err != nil || v.Allow != allow {
			t.Fatalf("%s: %+v, %v", name, v, err)
		}
	}
	for range 3 {
		ask("a.example.com", true)
		ask("bad.example.com", false)
	}
	if good, bad := h.questions("a.example.com"), h.questions("bad.example.com"); good != 1 || bad != 3 {
		t.Errorf("asked %d times about a name that is allowed and %d about one that is not, want 1 and 3", good, bad)
	}
	h.hangUp()
	ask("a.example.com", true)
	if n := h.questions("a.example.com"); n != 2 {
		t.Errorf("after the stream ended it was asked %d times, want 2", n)
	}
	for i := range maxAllowed + 10 {
		ask(fmt.Sprintf("n%d.example.com", i), true)
	}
	line.mu.Lock()
	kept := len(line.allowed)
	line.mu.Unlock()
	if kept > maxAllowed {
		t.Errorf("%d names are remembered", kept)
	}
	// Nobody asks: the stream ends, and what was allowed with it.
	line.mu.Lock()
	line.idle.Reset(time.Millisecond)
	line.mu.Unlock()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		line.mu.Lock()
		gone := line.conn == nil && line.allowed == nil
		line.mu.Unlock()
		if gone {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the stream stays")
		}
	}
}
