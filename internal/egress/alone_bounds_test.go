package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// exhausted is a listener for which there is no descriptor left at first.
type exhausted struct {
	net.Listener
	errs []error // of the first times
}

func (l *exhausted) Accept() (net.Conn, error) {
	if len(l.errs) > 0 {
		err := l.errs[0]
		l.errs = l.errs[1:]
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", err)}
	}
	return l.Listener.Accept()
}

// One session that takes all descriptors must not end the proxy of all others.
func TestAloneOutlivesExhaustion(t *testing.T) {
	r := newRig(t, "")
	serve := func(ctx context.Context, failures ...error) (string, chan error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() {
			defer l.Close()
			served <- (&Alone{proxy: r.proxy, keys: keys(t, testKey), now: time.Now, strangers: maxStrangers}).Serve(ctx, &exhausted{l, failures})
		}()
		return "http://" + l.Addr().String(), served
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	u, served := serve(ctx, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM)
	res, err := http.Get(u)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusProxyAuthRequired {
		t.Errorf("GET = %d, want 407", res.StatusCode)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, served := serve(t.Context(), syscall.EINVAL); !errors.Is(<-served, errs.Unavailable) {
		t.Error("a listener that is broken is no error")
	}
}

// A session that opens what it can leaves the others theirs, and has its own
// again when it closes some.
func TestASessionHasABound(t *testing.T) {
	r := newRig(t, "")
	r.publish("a.example.com", "93.184.215.14", echoServer(t), 7)
	k := keys(t, testKey)
	at := r.serveAlone(&Alone{proxy: r.proxy, keys: k, now: time.Now, perSession: 3, strangers: maxStrangers})
	connect := func(session string) (net.Conn, int) {
		t.Helper()
		token, err := k.sign(sandbox.UID(session), sandbox.Policy{Mode: sandbox.NetworkOpen}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", hostOf(at))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(c, "CONNECT a.example.com:7 HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer %s\r\n\r\n", token)
		res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
		if err != nil {
			t.Fatal(err)
		}
		return c, res.StatusCode
	}
	var last net.Conn
	for i := range 3 {
		c, code := connect("one")
		if last = c; code != 200 {
			t.Fatalf("connection %d = %d", i, code)
		}
	}
	for session, want := range map[string]int{"one": 503, "two": 200} {
		if _, code := connect(session); code != want {
			t.Errorf("one more of session %s = %d, want %d", session, code, want)
		}
	}
	last.Close()
	r.until("the session can connect again", func() bool {
		_, code := connect("one")
		return code == 200
	})
}

// Whoever has no token holds no more than a bound: those that have one get in.
func TestStrangersHaveABound(t *testing.T) {
	r := newRig(t, "")
	r.publish("a.example.com", "93.184.215.14", echoServer(t), 7)
	k := keys(t, testKey)
	const bound = 3
	a := &Alone{proxy: r.proxy, keys: k, now: time.Now, perSession: maxSessionStreams, strangers: bound}
	at := hostOf(r.serveAlone(a))
	counted := func() int {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.addresses[netip.MustParseAddr("127.0.0.1")]
	}
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(patience))
		return c
	}
	// Those with a token do not count, however many.
	for range 2 * bound {
		token, err := k.sign("box", sandbox.Policy{Mode: sandbox.NetworkOpen}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		c := dial()
		fmt.Fprintf(c, "CONNECT a.example.com:7 HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer %s\r\n\r\n", token)
		if res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect}); err != nil || res.StatusCode != 200 {
			t.Fatalf("a connection with a token: %v, %v", res, err)
		}
	}
	if n := counted(); n != 0 {
		t.Fatalf("%d of the connections with a token count as without", n)
	}
	for range bound {
		fmt.Fprint(dial(), "CONNECT a.exa") // and no more
	}
	r.until("they are counted", func() bool { return counted() == bound })
	// It is closed, with a reset when it has sent something.
	if n, err := dial().Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one more connection without a token: %d bytes, %v, want its end", n, err)
	}
}
