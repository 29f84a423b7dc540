package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// patience bounds what a test waits for.
const patience = time.Minute

// ended waits for n connections to be over.
func (r *rig) ended(n int) []Connection {
	r.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		r.mu.Lock()
		list := slices.Clone(r.ends)
		r.mu.Unlock()
		if len(list) >= n {
			return list
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%d connections have ended, want %d: %+v", len(list), n, list)
		}
	}
}

// until waits for a condition.
func (r *rig) until(what string, holds func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("it does not come to pass that %s", what)
		}
	}
}

// server handles every connection that comes, and closes it.
func server(t testing.TB, handle func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
	return l.Addr().String()
}

// echoServer answers every connection with what it says.
func echoServer(t testing.TB) string {
	return server(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
}

// connect opens a tunnel through a stream of the guest.
func (r *rig) connect(target string) (net.Conn, *bufio.Reader) {
	r.t.Helper()
	c := r.dial()
	_ = c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", target)
	br := bufio.NewReader(c)
	res, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
	if err != nil || res.StatusCode != 200 {
		r.t.Fatalf("CONNECT %s = %v, %v", target, res, err)
	}
	return c, br
}

func echoes(t testing.TB, c net.Conn, br *bufio.Reader, line string) {
	t.Helper()
	fmt.Fprintln(c, line)
	if got, err := br.ReadString('\n'); err != nil || got != line+"\n" {
		t.Fatalf("echo of %q = %q, %v", line, got, err)
	}
}

// Every request that was allowed is heard of once more when it is over, with
// what it carried.
func TestConnectionsAreAccountedFor(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = w.Write(slices.Repeat(b, 2))
	}))
	defer up.Close()
	r := newRig(t, "")
	r.policy = sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"*.example.com"}}
	r.publish("echo.example.com", "93.184.215.14", echoServer(t), 7)
	r.publish("web.example.com", "93.184.215.15", hostOf(up.URL), 80)
	r.publish("dead.example.com", "93.184.215.16", "127.0.0.1:1", 80)

	c, br := r.connect("echo.example.com:7")
	if n, sent, received := r.proxy.Traffic(); n != 1 || sent+received != 0 {
		t.Errorf("%d connections are open with %d and %d bytes, want 1 with none", n, sent, received)
	}
	echoes(t, c, br, strings.Repeat("x", 99_999))
	// While it is open it counts already. (The guest may read the last bytes
	// before they are counted.)
	r.until("the bytes of an open tunnel are counted", func() bool {
		n, sent, received := r.proxy.Traffic()
		list := r.proxy.Open("box")
		return n == 1 && sent == 100_000 && received == 100_000 && len(list) == 1 &&
			list[0].Host == "echo.example.com" && list[0].Sent == 100_000 && list[0].Received == 100_000 && list[0].Duration > 0
	})
	if list := r.proxy.Open("another"); len(list) != 0 {
		t.Errorf("another sandbox has %+v", list)
	}
	c.Close()
	got := r.ended(1)[0]
	if got.Protocol != ProtocolConnect || got.Sent != 100_000 || got.Received != 100_000 || got.End != EndClosed ||
		got.Host != "echo.example.com" || got.Port != 7 || got.Rule != RuleAllowlist || got.Duration <= 0 {
		t.Errorf("the tunnel = %+v", got)
	}

	client := r.client()
	for i := range 2 { // on one kept connection to the host
		res, err := client.Post("http://web.example.com/", "text/plain", strings.NewReader(strings.Repeat("x", 10_000)))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		got := r.ended(2 + i)[1+i]
		if got.Protocol != ProtocolHTTP || got.Sent < 10_000 || got.Sent > 12_000 || got.Received < 20_000 || got.Received > 22_000 || got.End != EndClosed {
			t.Errorf("request %d = %+v", i, got)
		}
	}

	_, _ = r.socksClient().Get("http://dead.example.com/")
	get(t, client, "http://dead.example.com/")
	get(t, client, "http://denied.test.net/")
	for i, by := range []Protocol{ProtocolSocks, ProtocolHTTP} {
		if got := r.ended(5)[3+i]; got.End != EndFailed || got.Protocol != by || got.Sent+got.Received != 0 || got.Host != "dead.example.com" {
			t.Errorf("a host that does not answer = %+v", got)
		}
	}
	open, sent, received := r.proxy.Traffic()
	if n := len(r.ended(5)); n != 5 || open != 0 || len(r.proxy.Open("box")) != 0 {
		t.Errorf("%d ends and %d open connections, want 5 and none", n, open)
	}
	for _, c := range r.ended(5) {
		sent -= c.Sent
		received -= c.Received
	}
	if sent != 0 || received != 0 {
		t.Errorf("%d bytes sent and %d received are in the sums and in no connection", sent, received)
	}
}

// A request that is sent again, because a kept connection ended under it, is
// one request with the bytes of both.
func TestRepeatedRequestCountsBothConnections(t *testing.T) {
	var mu sync.Mutex
	arrived := 0 // bytes of requests for /again, and how often they came
	times := 0
	address := server(t, func(c net.Conn) {
		for br := bufio.NewReader(c); ; {
			size, again := 0, false
			for line := ""; line != "\r\n"; size += len(line) {
				var err error
				if line, err = br.ReadString('\n'); err != nil {
					return
				}
				again = again || strings.HasPrefix(line, "GET /again ")
			}
			if again {
				mu.Lock()
				arrived += size
				times++
				first := times == 1
				mu.Unlock()
				if first {
					return
				}
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	r := newRig(t, "")
	r.publish("web.example.com", "93.184.215.15", address, 80)
	client := r.client()
	for _, path := range []string{"/", "/again"} {
		if code, body, _ := get(t, client, "http://web.example.com"+path); code != 200 || body != "ok" {
			t.Fatalf("%s = %d %q", path, code, body)
		}
	}
	got := r.ended(2)[1]
	mu.Lock()
	defer mu.Unlock()
	if times != 2 || got.Sent != int64(arrived) {
		t.Errorf("%d bytes are counted of %d that arrived in %d requests", got.Sent, arrived, times)
	}
	if n := len(r.seen()); n != 2 {
		t.Errorf("%d decisions, want one per request", n)
	}
}

// TLS for another host than was allowed is a denial, and the connection's end.
func TestDeniedServerNameIsAnEnd(t *testing.T) {
	r := newRig(t, "")
	r.policy = sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"a.example.com"}}
	r.publish("a.example.com", "93.184.215.14", echoServer(t), 443)
	c, br := r.connect("a.example.com:443")
	if _, err := c.Write(clientHello(t, "b.example.com")); err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(br)
	if got := r.ended(1)[0]; got.End != EndDenied || got.Sent != 0 {
		t.Errorf("the tunnel = %+v", got)
	}
}

// The end of a stream's context is the end of what it carries.
func TestConnectionsEndWithTheStream(t *testing.T) {
	r := newRig(t, "")
	r.publish("a.example.com", "93.184.215.14", echoServer(t), 7)
	guest, host := socketPair(t)
	defer guest.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	served := make(chan struct{})
	go func() {
		defer close(served)
		r.proxy.Serve(ctx, host, sandbox.DoorProxy, Guest{Box: "box"}, func() sandbox.Policy { return r.policy })
	}()
	_ = guest.SetDeadline(time.Now().Add(patience))
	fmt.Fprint(guest, "CONNECT a.example.com:7 HTTP/1.1\r\nHost: x\r\n\r\n")
	br := bufio.NewReader(guest)
	if _, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect}); err != nil {
		t.Fatal(err)
	}
	echoes(t, guest, br, "hello")
	cancel()
	<-served
	if got := r.ended(1)[0]; got.Sent != 6 || got.Received != 6 || got.End != EndClosed {
		t.Errorf("the tunnel = %+v", got)
	}
}

// What a new policy does not allow is cut, whatever carries it; what it allows
// stays.
func TestCut(t *testing.T) {
	release := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, strings.Repeat("x", 8192))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-release:
		}
	}))
	defer up.Close()
	defer close(release)
	r := newRig(t, "")
	var policy atomic.Pointer[sandbox.Policy]
	r.live = &policy
	policy.Store(&sandbox.Policy{Mode: sandbox.NetworkOpen})
	echo := echoServer(t)
	r.publish("stays.example.com", "93.184.215.14", echo, 7)
	r.publish("goes.example.com", "93.184.215.15", echo, 7)
	r.publish("leads.example.com", "93.184.216.1", echo, 7)
	r.publish("web.example.com", "93.184.215.16", hostOf(up.URL), 80)

	stays, staysIn := r.connect("stays.example.com:7")
	goes, goesIn := r.connect("goes.example.com:7")
	leads, leadsIn := r.connect("leads.example.com:7")
	echoes(t, stays, staysIn, "one")
	echoes(t, goes, goesIn, "one")
	echoes(t, leads, leadsIn, "one")
	web := r.dial()
	_ = web.SetDeadline(time.Now().Add(patience))
	fmt.Fprint(web, "GET http://web.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(web), nil)
	if err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	idle := r.client()
	if n, _, _ := r.proxy.Traffic(); n != 4 {
		t.Fatalf("%d connections, want 4", n)
	}

	// Of another sandbox nothing is cut, and nothing that is still allowed.
	denied := &sandbox.Policy{Mode: sandbox.NetworkOpen, Deny: []string{"goes.example.com", "web.example.com:80", "93.184.216.0/24"}}
	if n := r.proxy.Cut("other", *denied) + r.proxy.Cut("box", *policy.Load()); n != 0 {
		t.Errorf("%d connections were cut, want none", n)
	}
	policy.Store(denied)
	if n := r.proxy.Cut("box", *denied); n != 3 {
		t.Errorf("%d connections were cut, want 3", n)
	}
	for what, from := range map[string]io.Reader{"a tunnel": goesIn, "one to a denied address": leadsIn, "a download": res.Body} {
		if _, err := io.Copy(io.Discard, from); isTimeout(err) {
			t.Errorf("%s goes on", what)
		}
	}
	echoes(t, stays, staysIn, "two")
	for _, c := range r.ended(3) {
		if c.End != EndCut || c.Received == 0 || c.Host == "stays.example.com" {
			t.Errorf("cut = %+v", c)
		}
	}
	if code, body, _ := get(t, idle, "http://goes.example.com:7/"); code != 403 {
		t.Errorf("a new request = %d %q, want 403", code, body)
	}
	stays.Close()
	if c := r.ended(4)[3]; c.End != EndClosed || c.Sent != 8 {
		t.Errorf("what stayed = %+v", c)
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// A policy that changes while a tunnel is being connected holds for it: a cut
// at that moment does not see it yet.
func TestPolicyChangesWhileConnecting(t *testing.T) {
	r := newRig(t, "")
	var policy atomic.Pointer[sandbox.Policy]
	r.live = &policy
	policy.Store(&sandbox.Policy{Mode: sandbox.NetworkOpen})
	r.publish("a.example.com", "93.184.215.14", echoServer(t), 7)
	dial := r.proxy.dialer
	r.proxy.dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		policy.Store(&sandbox.Policy{Mode: sandbox.NetworkNone})
		r.proxy.Cut("box", *policy.Load())
		return c, err
	}
	c := r.dial()
	_ = c.SetDeadline(time.Now().Add(patience))
	fmt.Fprint(c, "CONNECT a.example.com:7 HTTP/1.1\r\nHost: x\r\n\r\nhello\n")
	if b, err := io.ReadAll(c); isTimeout(err) || strings.Contains(string(b), "hello") {
		t.Errorf("the tunnel says %q, %v", b, err)
	}
	if got := r.ended(1)[0]; got.End != EndCut {
		t.Errorf("the tunnel = %+v", got)
	}
}

// A request on a kept connection is decided anew, and so is the address to
// which a kept connection of the proxy's own leads.
func TestKeptConnectionsAreDecidedAnew(t *testing.T) {
	var conns atomic.Int64
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	up.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			conns.Add(1)
		}
	}
	up.Start()
	defer up.Close()
	r := newRig(t, "")
	var policy atomic.Pointer[sandbox.Policy]
	r.live = &policy
	r.publish("a.example.com", "93.184.215.14", hostOf(up.URL), 80)
	c := r.dial()
	_ = c.SetDeadline(time.Now().Add(patience))
	br := bufio.NewReader(c)
	open, allowlist := sandbox.NetworkOpen, sandbox.NetworkAllowlist
	for i, step := range []struct {
		policy sandbox.Policy
		code   int
		conns  int64 // that the host has seen
	}{
		{sandbox.Policy{Mode: open}, 200, 1},
		{sandbox.Policy{Mode: open}, 200, 1},
		{sandbox.Policy{Mode: allowlist, Allow: []string{"a.example.com"}}, 200, 2},
		{sandbox.Policy{Mode: open, Deny: []string{"93.184.215.0/24"}}, 403, 2},
	} {
		policy.Store(&step.policy)
		fmt.Fprint(c, "GET http://a.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n")
		res, err := http.ReadResponse(br, nil)
		if err != nil || res.StatusCode != step.code || conns.Load() != step.conns {
			t.Fatalf("request %d = %v, %v with %d connections; want %d with %d", i, res, err, conns.Load(), step.code, step.conns)
		}
		_, _ = io.Copy(io.Discard, res.Body)
	}
}

// Behind a proxy of its own the address is not known here: a new rule about
// addresses cuts what it might mean.
func TestCutBehindAnotherProxy(t *testing.T) {
	far := newRig(t, "")
	far.publish("a.example.com", "93.184.215.14", echoServer(t), 7)
	k := keys(t, testKey)
	near := newRig(t, "")
	var err error
	if near.proxy.upstream, err = NewUpstream(far.startAlone(k), k); err != nil {
		t.Fatal(err)
	}
	c, br := near.connect("a.example.com:7")
	echoes(t, c, br, "one")
	for _, deny := range []string{"b.example.com", "10.0.0.0/8:8"} {
		if n := near.proxy.Cut("box", sandbox.Policy{Mode: sandbox.NetworkOpen, Deny: []string{deny}}); n != 0 {
			t.Errorf("a new rule for %s cuts %d", deny, n)
		}
	}
	echoes(t, c, br, "two")
	if n := near.proxy.Cut("box", sandbox.Policy{Mode: sandbox.NetworkOpen, Deny: []string{"93.184.0.0/16"}}); n != 1 {
		t.Errorf("a new rule for addresses cuts %d, want 1", n)
	}
	if _, err := io.Copy(io.Discard, br); isTimeout(err) {
		t.Error("the tunnel goes on")
	}
}
