package channel

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/errs"
)

const testSecret = "s3cret"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newListener(t *testing.T, path string) *Listener {
	t.Helper()
	l, err := Listen(path, testSecret, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func socketPath(t *testing.T) string { return filepath.Join(t.TempDir(), "host.sock") }

func dialAs(t *testing.T, path, line string) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, line); err != nil {
		t.Fatal(err)
	}
	return conn
}

func short(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestStrangersAreClosed(t *testing.T) {
	path := socketPath(t)
	l := newListener(t, path)
	for name, line := range map[string]string{
		"wrong secret": "CUBBY1 other control\n",
		"no secret":    "CUBBY1  control\n",
		"unknown kind": "CUBBY1 s3cret root\n",
		"version 0":    "CUBBY0 s3cret control\n",
		"next version": "CUBBY3 s3cret control of more words\n",
		"odd version":  "CUBBY02 s3cret control\n",
		"HTTP":         "GET / HTTP/1.1\r\n\r\n",
		"endless line": strings.Repeat("x", 4096),
		"too many":     "CUBBY1 s3cret control x\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, line) // the host may close in the middle
			_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
			if n, err := conn.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Read = %d, %v, want a closed connection", n, err)
			}
			if l.Connected() {
				t.Error("a stranger became the agent")
			}
		})
	}
}

func TestStrangerThatSaysNothingIsClosed(t *testing.T) {
	path := socketPath(t)
	newListener(t, path)
	conn := dialAs(t, path, "CUBBY1 s3c")
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a connection without hello is still open")
	}
}

func TestDialAsksForMore(t *testing.T) {
	path := socketPath(t)
	l := newListener(t, path)
	ctx := short(t)
	control := dialAs(t, path, "CUBBY1 s3cret control\n")
	if err := l.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	got := make(chan net.Conn, 1)
	go func() {
		conn, err := l.Dial(ctx)
		if err != nil {
			t.Errorf("Dial = %v", err)
		}
		got <- conn
	}()
	line := make([]byte, 7)
	if _, err := io.ReadFull(control, line); err != nil || string(line) != "more 1\n" {
		t.Fatalf("control line = %q, %v, want more 1", line, err)
	}
	guest := dialAs(t, path, "CUBBY1 s3cret pool\n")
	conn := <-got
	defer conn.Close()
	if _, err := io.WriteString(conn, "ping"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4)
	if _, err := io.ReadFull(guest, buf); err != nil || string(buf) != "ping" {
		t.Errorf("the guest got %q, %v", buf, err)
	}
}

func TestDialWithoutAgentIsUnavailable(t *testing.T) {
	l := newListener(t, socketPath(t))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := l.Dial(ctx); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Dial = %v, want unavailable", err)
	}
	if err := l.Wait(ctx); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Wait = %v, want unavailable", err)
	}
}

// An agent that was replaced leaves connections in the pool that are dead.
func TestDialSkipsDeadConnections(t *testing.T) {
	path := socketPath(t)
	l := newListener(t, path)
	ctx := short(t)
	for range 3 {
		dialAs(t, path, "CUBBY1 s3cret pool\n").Close()
	}
	live := dialAs(t, path, "CUBBY1 s3cret pool\n")
	conn, err := l.Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := live.Read(make([]byte, 1)); err != nil {
		t.Errorf("the live connection got nothing: %v", err)
	}
}

func TestControlIsReplacedAndLost(t *testing.T) {
	path := socketPath(t)
	l := newListener(t, path)
	ctx := short(t)
	select {
	case <-l.Gone():
	default:
		t.Error("Gone is open without an agent")
	}
	first := dialAs(t, path, "CUBBY1 s3cret control\n")
	if err := l.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	firstGone := l.Gone()
	second := dialAs(t, path, "CUBBY1 s3cret control\n")
	<-firstGone
	if _, err := first.Read(make([]byte, 1)); err == nil {
		t.Error("the replaced connection is open")
	}
	if !l.Connected() {
		t.Fatal("not connected after a replacement")
	}
	secondGone := l.Gone()
	second.Close()
	<-secondGone
	if l.Connected() {
		t.Error("connected after the end")
	}
	dialAs(t, path, "CUBBY1 s3cret control\n")
	if err := l.Wait(ctx); err != nil {
		t.Errorf("Wait after a return = %v", err)
	}
}

func TestEgressIsBounded(t *testing.T) {
	path := socketPath(t)
	l := newListener(t, path)
	ctx := short(t)
	guest := dialAs(t, path, "CUBBY1 s3cret egress\nCONNECT x")
	conn, _, err := l.AcceptEgress(ctx)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 9)
	if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != "CONNECT x" {
		t.Errorf("the host got %q, %v", buf, err)
	}
	for range maxEgress - 1 {
		l.egress <- struct{}{}
	}
	refused := dialAs(t, path, "CUBBY1 s3cret egress\n")
	if _, err := refused.Read(make([]byte, 1)); err == nil {
		t.Error("a stream beyond the bound is open")
	}
	conn.Close()
	conn.Close() // gives its slot back once
	guest.Close()
	dialAs(t, path, "CUBBY1 s3cret egress\n")
	again, _, err := l.AcceptEgress(ctx)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestListenReplacesAStaleSocket(t *testing.T) {
	path := socketPath(t)
	old := newListener(t, path)
	dialAs(t, path, "CUBBY1 s3cret control\n")
	if err := old.Wait(short(t)); err != nil {
		t.Fatal(err)
	}
	gone := old.Gone()
	old.Close()
	<-gone
	l := newListener(t, path)
	dialAs(t, path, "CUBBY1 s3cret control\n")
	if err := l.Wait(short(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Dial(t.Context()); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Dial on a closed listener = %v, want unavailable", err)
	}
	if _, _, err := old.AcceptEgress(t.Context()); !errors.Is(err, errs.Unavailable) {
		t.Errorf("AcceptEgress on a closed listener = %v, want unavailable", err)
	}
}

func TestLongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 100))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	newListener(t, filepath.Join(dir, "host.sock"))
	if _, err := os.Stat(filepath.Join(dir, "host.sock")); err != nil {
		t.Error(err)
	}
}

func FuzzHello(f *testing.F) {
	for _, s := range []string{"CUBBY2 s3cret control", "CUBBY1 s3cret control", "CUBBY9 s3cret control", "CUBBY1 s3cret pool", "CUBBY1 s3cret  egress", "", " ", "CUBBY1 s3cret control\r"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		kind, err := parseHello(line, []string{testSecret})
		rest := " " + testSecret + " " + string(kind)
		if (err == nil) != (kind != "" && (line == "CUBBY1"+rest || line == "CUBBY2"+rest)) {
			t.Errorf("parseHello(%q) = %q, %v", line, kind, err)
		}
	})
}

// A secret is replaced without a moment in which the agent has none that is good.
func TestRekey(t *testing.T) {
	path := socketPath(t)
	l := newListener(t, path)
	dialAs(t, path, "CUBBY2 s3cret control\n")
	if err := l.Wait(short(t)); err != nil {
		t.Fatal(err)
	}
	accepted := func(secret string) bool {
		t.Helper()
		conn := dialAs(t, path, "CUBBY2 "+secret+" pool\n")
		closed := make(chan struct{})
		go func() {
			_, _ = conn.Read(make([]byte, 1))
			close(closed)
		}()
		given := make(chan net.Conn, 1)
		ctx, cancel := context.WithCancel(short(t))
		go func() {
			c, err := l.Dial(ctx)
			if err == nil {
				given <- c
			}
			close(given)
		}()
		defer func() {
			cancel()
			conn.Close()
			for c := range given {
				c.Close()
			}
			<-closed
		}()
		select {
		case <-closed:
			return false
		case c, ok := <-given:
			if ok {
				c.Close()
			}
			return ok
		}
	}
	var done func()
	for _, step := range []struct {
		name     string
		do       func()
		old, new bool
	}{
		{"before", func() {}, true, false},
		{"meanwhile", func() { done = l.Rekey("new") }, true, true},
		{"after", func() { done() }, false, true},
	} {
		step.do()
		if old, is := accepted("s3cret"), accepted("new"); old != step.old || is != step.new {
			t.Errorf("%s: the old secret is good: %t, the new one: %t", step.name, old, is)
		}
	}
	if !l.Connected() {
		t.Error("the connection that was proven is gone")
	}
}
