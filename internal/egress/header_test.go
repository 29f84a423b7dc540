package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// Thousands of the shortest possible header fields, never finished: the daemon
// would hold forty times their bytes, for every stream of every sandbox.
func TestHeaderBombOfTheGuest(t *testing.T) {
	for _, start := range []string{"CONNECT a.example:443 HTTP/1.1\r\n", "GET http://a.example/ HTTP/1.1\r\n"} {
		guest := newRig(t, "").dial()
		var bomb strings.Builder
		bomb.WriteString(start + "Host: a.example\r\n")
		for i := range 5000 {
			fmt.Fprintf(&bomb, "%x:\r\n", i)
		}
		_, _ = io.WriteString(guest, bomb.String()) // refused on the way
		answer, _ := io.ReadAll(guest)
		if strings.Contains(string(answer), " 200 ") {
			t.Errorf("%q: answer = %q", start, answer)
		}
	}
}

func TestHeaderBombOfAServer(t *testing.T) {
	for name, first := range map[string]string{"plain": "", "after a hint": "HTTP/1.1 103 Early Hints\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			stopped := make(chan int, 1)
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				_, _ = conn.Read(make([]byte, 4096))
				_, _ = io.WriteString(conn, first)
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
				sent := 0
				for ; sent < 1<<20; sent++ {
					if _, err := fmt.Fprintf(conn, "%x:\r\n", sent); err != nil {
						break
					}
				}
				stopped <- sent
			}()
			r := newRig(t, "")
			r.publish("a.example", "203.0.113.1", l.Addr().String(), 80)
			guest := r.dial()
			_, _ = io.WriteString(guest, "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
			if sent := <-stopped; sent == 1<<20 {
				t.Error("the whole header was taken")
			}
			answer, _ := io.ReadAll(guest)
			if !strings.Contains(string(answer), " 502 ") {
				t.Errorf("answer = %.300q", answer)
			}
		})
	}
}

// A body is no header, whatever its lines are, and every request of a stream
// has a header of its own.
func TestHeaderLinesOfBodiesAreNotCounted(t *testing.T) {
	lines := strings.Repeat("a\n\r\n", 20*maxHeaderLines)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}))
	defer server.Close()
	r := newRig(t, "")
	address := netip.MustParseAddrPort(server.Listener.Addr().String())
	r.publish("a.example", "203.0.113.1", address.String(), 80)
	guest := r.dial()
	transport := &http.Transport{
		Proxy:       http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.example"}),
		DialContext: func(context.Context, string, string) (net.Conn, error) { return guest, nil },
	}
	defer transport.CloseIdleConnections()
	for i := range 3 {
		res, err := (&http.Client{Transport: transport}).Post("http://a.example/", "text/plain", strings.NewReader(lines))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || string(got) != lines {
			t.Errorf("request %d: %d bytes, %v; want %d", i, len(got), err, len(lines))
		}
	}
}

// What comes before an answer may come together with it and its body.
func TestHeaderLinesBehindAHint(t *testing.T) {
	body := strings.Repeat("line\n", 40*maxHeaderLines)
	for what, first := range map[string]string{
		"a hint":     "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n",
		"two hints":  "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
		"a continue": "HTTP/1.1 100 Continue\r\n\r\n",
		"nothing":    "",
	} {
		address := server(t, func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = fmt.Fprintf(conn, "%sHTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", first, len(body), body)
			_, _ = io.Copy(io.Discard, conn)
		})
		r := newRig(t, "")
		r.publish("a.example", "203.0.113.1", address, 80)
		if code, got, _ := get(t, r.client(), "http://a.example/"); code != 200 || got != body {
			t.Errorf("behind %s: %d with %d bytes, want 200 with %d", what, code, len(got), len(body))
		}
	}
}

// Once there were too many lines nothing more is read: the rest of a line that
// was cut in two must not pass for the end of the header.
func TestHeaderGuardStaysShut(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		defer theirs.Close()
		for _, chunk := range []string{strings.Repeat("a:\r\n", maxHeaderLines+1) + "b:", "\r\n", "body"} {
			if _, err := io.WriteString(theirs, chunk); err != nil {
				return
			}
		}
	}()
	g := &headerGuard{Conn: ours}
	for i := range 3 {
		if n, err := g.Read(make([]byte, 8192)); n != 0 || !errors.Is(err, errHeaderLines) {
			t.Errorf("read %d = %d, %v, want none and %v", i, n, err, errHeaderLines)
		}
	}
}
