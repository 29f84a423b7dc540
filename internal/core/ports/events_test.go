package ports_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a daemon with a sandbox "a", whose loopback is the test's.
type world struct {
	*client.Client
	t *testing.T
	d *daemontest.Daemon
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, d: daemontest.Start(t, daemontest.Options{})}
	w.Client = client.New(w.d.URL, client.WithHTTPClient(&http.Client{Transport: new(http.Transport)}))
	t.Cleanup(w.Close)
	if _, err := w.Create(t.Context(), client.CreateOptions{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	return w
}

// found is an event about a port of the test.
type found struct {
	kind string
	port int
	pid  int64
}

// follow brings the events about ports that this process listens on.
func (w *world) follow(ctx context.Context, kinds ...string) <-chan found {
	all := make(chan found)
	go func() {
		defer close(all)
		for e, err := range w.FollowEvents(ctx, "a", 0, kinds...) {
			if err != nil {
				return
			}
			var p struct {
				Port int
				PID  int64
			}
			if err := json.Unmarshal(e.Payload, &p); err != nil {
				w.t.Error(err)
			}
			if p.PID == int64(os.Getpid()) {
				select {
				case all <- found{e.Kind, p.Port, p.PID}:
				case <-ctx.Done():
				}
			}
		}
	}()
	return all
}

func listen(t *testing.T) (l net.Listener, port int) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, l.Addr().(*net.TCPAddr).Port
}

// next is the next event of a kind about one of the ports.
func next(t *testing.T, events <-chan found, kind string, port int) {
	t.Helper()
	patience := time.After(time.Minute)
	for {
		select {
		case e, ok := <-events:
			if !ok {
				t.Fatalf("no %s of port %d", kind, port)
			}
			if e.port == port {
				if e.kind != kind {
					t.Fatalf("%s of port %d, want %s", e.kind, port, kind)
				}
				return
			}
		case <-patience:
			t.Fatalf("no %s of port %d for a minute", kind, port)
		}
	}
}

// Whoever follows the events of a sandbox hears of its ports, and this is no use
// of it.
func TestFollowersHearOfPorts(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := w.follow(ctx, "port.*")
	before, err := w.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	l, port := listen(t)
	next(t, events, "port.opened", port)
	l.Close()
	next(t, events, "port.closed", port)
	after, err := w.Get(t.Context(), "a")
	if err != nil || !after.LastActiveAt.Equal(before.LastActiveAt) || after.IdleAt == nil {
		t.Errorf("looks are use: %+v, %v", after, err)
	}
	// Nothing wakes for it.
	if _, err := w.Sleep(t.Context(), "a", true); err != nil {
		t.Fatal(err)
	}
	l, port = listen(t)
	defer l.Close()
	select {
	case e := <-events:
		if e.port == port {
			t.Errorf("%+v of a sandbox that sleeps", e)
		}
	case <-time.After(2 * time.Second): // two looks, if there were any
	}
	if b, err := w.Get(t.Context(), "a"); err != nil || b.Status == client.Running {
		t.Errorf("following woke the sandbox: %s, %v", b.Status, err)
	}
	if _, err := w.Exec(t.Context(), "a", client.Command("true")); err != nil { // wakes it
		t.Fatal(err)
	}
	next(t, events, "port.opened", port)
	cancel()
	for range events {
	}
}

// The end of a command is a reason to look, and so is a visit.
func TestEndsAndVisitsAreReasons(t *testing.T) {
	w := newWorld(t)
	opened := func(port int) bool {
		t.Helper()
		all, _, err := w.Events(t.Context(), "a", 0, 1000, "port.opened")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			var p struct{ Port int }
			if err := json.Unmarshal(e.Payload, &p); err != nil {
				t.Fatal(err)
			}
			if p.Port == port {
				return true
			}
		}
		return false
	}
	until := func(port int, what string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !opened(port); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s is no reason to look", what)
			}
		}
	}
	_, first := listen(t)
	if _, err := w.Exec(t.Context(), "a", client.Command("true")); err != nil {
		t.Fatal(err)
	}
	until(first, "the end of a command")
	l, second := listen(t)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			conn.Close()
		}
	}()
	conn, err := w.DialPort(t.Context(), "a", second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	until(second, "a visit")
}
