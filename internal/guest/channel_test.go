package guest_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/guestd"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// The daemon was restarted while a command ran: the agent redials by itself,
// and the stream goes on where it was left.
func TestRedialAfterTheHostReturns(t *testing.T) {
	h := start(t, nil)
	ctx := testContext(t)
	before, err := h.Hello(ctx)
	if err != nil {
		t.Fatal(err)
	}
	uid := sandbox.NewUID()
	s, err := h.Exec(ctx, uid, &guest.Start{ExecSpec: shell("echo one; while ! test -e " + h.path + ".go; do sleep 0.01; done; echo two")}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var r result
	for r.next == 0 {
		m, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		r.take(m)
	}
	gone := h.channel.Gone()
	h.channel.Close()
	<-gone
	s.Close()
	h.Close()

	h.channel = listen(t, h.path)
	h.Client = guest.New(h.channel.Dial)
	t.Cleanup(func() { h.Close() })
	after, err := h.Hello(ctx)
	if err != nil || after != before {
		t.Fatalf("Hello = %+v, %v, want the same agent %+v", after, err, before)
	}
	list, err := h.List(ctx)
	if err != nil || len(list) != 1 || list[0].UID != uid || list[0].Finished {
		t.Fatalf("List = %+v, %v, want the command that runs", list, err)
	}
	touch(t, h.path+".go")
	if r := h.follow(t, ctx, uid, nil, r.next); string(r.stdout) != "two\n" || *r.exit.Code != 0 {
		t.Errorf("the rest of the stream = %q, %+v", r.stdout, r.exit)
	}
}

func TestManyStreamsAtOnce(t *testing.T) {
	h := start(t, nil)
	ctx := testContext(t)
	const many = 40 // ten times what the agent keeps ready
	var streams []*guest.ExecStream
	for range many {
		s, err := h.Exec(ctx, sandbox.NewUID(), &guest.Start{ExecSpec: shell("sleep 100")}, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		streams = append(streams, s)
	}
	for _, s := range streams {
		if m, err := s.Next(); err != nil || m.Started == nil {
			t.Fatalf("Next = %+v, %v", m, err)
		}
	}
}

func TestDialPort(t *testing.T) {
	h := start(t, nil)
	ctx := testContext(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	served := make(chan []byte, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "banner ")
		b, _ := io.ReadAll(conn) // until the other direction is closed
		served <- b
		_, _ = conn.Write(bytes.ToUpper(b))
	}()
	conn, err := h.DialPort(ctx, port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "question"); err != nil {
		t.Fatal(err)
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != "banner QUESTION" {
		t.Errorf("answer = %q, %v", got, err)
	}
	if b := <-served; string(b) != "question" {
		t.Errorf("the server read %q", b)
	}
	l.Close()
	if _, err := h.DialPort(ctx, port); !errors.Is(err, errs.Unavailable) {
		t.Errorf("DialPort where nothing listens = %v, want unavailable", err)
	}
	if _, err := h.DialPort(ctx, 70000); !errors.Is(err, errs.Invalid) {
		t.Errorf("DialPort(70000) = %v, want invalid", err)
	}
}

func TestEgress(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	h := start(t, func(c *guestd.Config) { c.Boot.EgressListen = address })
	ctx := testContext(t)
	if _, err := h.Hello(ctx); err != nil {
		t.Fatal(err)
	}
	inside, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	if _, err := io.WriteString(inside, "CONNECT pypi.org:443 HTTP/1.1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := inside.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	outside, _, err := h.channel.AcceptEgress(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(outside)
	if err != nil || !strings.HasPrefix(string(got), "CONNECT pypi.org") {
		t.Errorf("the host got %q, %v", got, err)
	}
	// The other direction is still open.
	if _, err := io.WriteString(outside, "HTTP/1.1 403 Forbidden\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	outside.Close()
	if got, err := io.ReadAll(inside); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 403") {
		t.Errorf("the client inside got %q, %v", got, err)
	}

	h.channel.Close()
	orphan, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer orphan.Close()
	if got, err := io.ReadAll(orphan); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 503") {
		t.Errorf("without a host the client inside got %q, %v, want 503", got, err)
	}
}

// An agent with the wrong secret never becomes the sandbox's agent.
func TestWrongSecret(t *testing.T) {
	h := start(t, func(c *guestd.Config) { c.Boot.Secret = "another" })
	// Its redials reach the listener before this connection's hello does.
	for range 3 {
		conn, err := net.Dial("unix", h.path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "CUBBY1 x control\n")
		_, _ = io.ReadAll(conn)
		conn.Close()
	}
	if h.channel.Connected() {
		t.Error("an agent with the wrong secret is connected")
	}
}
