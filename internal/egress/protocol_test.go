package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// ways are clients that reach a server in every way that there is: with
// absolute URLs, through tunnels with HTTP/1 and HTTP/2 in them, and through
// SOCKS. Each has the URL to ask for.
func ways(t *testing.T, handler http.Handler) map[string]func(*testing.T) (*http.Client, string, *rig) {
	t.Helper()
	plain := httptest.NewServer(handler)
	t.Cleanup(plain.Close)
	secure := httptest.NewUnstartedServer(handler)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	t.Cleanup(secure.Close)
	behind := func(t *testing.T) *rig {
		r := newRig(t, "")
		r.publish("a.example.com", "93.184.215.14", hostOf(plain.URL), 80)
		r.routes["93.184.215.14:443"] = hostOf(secure.URL)
		return r
	}
	return map[string]func(*testing.T) (*http.Client, string, *rig){
		"absolute URL": func(t *testing.T) (*http.Client, string, *rig) {
			r := behind(t)
			return r.client(), "http://a.example.com/", r
		},
		"tunnel": func(t *testing.T) (*http.Client, string, *rig) {
			r := behind(t)
			return r.client(), "https://a.example.com/", r
		},
		"tunnel with HTTP/2": func(t *testing.T) (*http.Client, string, *rig) {
			r := behind(t)
			c := r.client()
			c.Transport.(*http.Transport).ForceAttemptHTTP2 = true
			return c, "https://a.example.com/", r
		},
		"SOCKS": func(t *testing.T) (*http.Client, string, *rig) {
			r := behind(t)
			c := r.socksClient()
			c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the test's own server
			return c, "https://a.example.com/", r
		},
	}
}

// Half of an answer comes before the server knows the rest, and half of a
// request before the client does.
func TestNothingIsHeldBack(t *testing.T) {
	for name, way := range ways(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		fmt.Fprintln(w, "first")
		_ = rc.Flush()
		from := bufio.NewReader(r.Body)
		for {
			line, err := from.ReadString('\n')
			if err != nil {
				return
			}
			fmt.Fprintf(w, "%s %s", r.Proto, line)
			_ = rc.Flush()
		}
	})) {
		t.Run(name, func(t *testing.T) {
			c, u, _ := way(t)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			body, write := io.Pipe()
			req, err := http.NewRequestWithContext(ctx, "POST", u, body)
			if err != nil {
				t.Fatal(err)
			}
			res, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			from := bufio.NewReader(res.Body)
			proto := "HTTP/1.1"
			if strings.HasSuffix(name, "HTTP/2") {
				proto = "HTTP/2.0"
			}
			for _, step := range []struct{ say, hear string }{{"", "first\n"}, {"one\n", proto + " one\n"}, {"two\n", proto + " two\n"}} {
				if step.say != "" {
					if _, err := io.WriteString(write, step.say); err != nil {
						t.Fatal(err)
					}
				}
				if line, err := from.ReadString('\n'); err != nil || line != step.hear {
					t.Fatalf("after %q came %q, %v; want %q", step.say, line, err, step.hear)
				}
			}
			write.Close()
			if rest, err := io.ReadAll(from); err != nil || len(rest) > 0 {
				t.Errorf("at the end came %q, %v", rest, err)
			}
		})
	}
}

func TestWebSockets(t *testing.T) {
	for name, way := range ways(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		c.SetReadLimit(1 << 20)
		for {
			kind, text, err := c.Read(r.Context())
			if err != nil {
				return
			}
			if err := c.Write(r.Context(), kind, bytes.ToUpper(text)); err != nil {
				return
			}
		}
	})) {
		if strings.HasSuffix(name, "HTTP/2") {
			continue // RFC 8441, which hardly anybody speaks
		}
		t.Run(name, func(t *testing.T) {
			client, u, r := way(t)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			c, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(u, "http"), &websocket.DialOptions{HTTPClient: client})
			if err != nil {
				t.Fatal(err)
			}
			defer c.CloseNow()
			c.SetReadLimit(1 << 20)
			for _, text := range []string{"a", strings.Repeat("b", 300_000), "c"} {
				if err := c.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
					t.Fatal(err)
				}
				if _, got, err := c.Read(ctx); err != nil || string(got) != strings.ToUpper(text) {
					t.Fatalf("%d bytes came back as %d, %v", len(text), len(got), err)
				}
			}
			if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
				t.Errorf("closing: %v", err)
			}
			client.CloseIdleConnections()
			if e := r.ended(1)[0]; e.Sent < 300_000 || e.Received < 300_000 || e.End != EndClosed {
				t.Errorf("the connection = %+v", e)
			}
		})
	}
}

// Requests of HTTP/2 share one tunnel, each with its own stream.
func TestHTTP2SharesATunnel(t *testing.T) {
	const requests = 20
	var present atomic.Int64
	together := make(chan struct{})
	for name, way := range ways(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if present.Add(1) == requests {
			close(together)
		}
		select {
		case <-together:
		case <-r.Context().Done():
		}
		fmt.Fprint(w, r.Proto)
	})) {
		if !strings.HasSuffix(name, "HTTP/2") {
			continue
		}
		c, u, r := way(t)
		c.Timeout = patience
		// One connection first: a transport opens one for each request until
		// it knows what they speak.
		c.Transport.(*http.Transport).MaxConnsPerHost = 1
		answers := make(chan string, requests)
		for range requests {
			go func() {
				res, err := c.Get(u)
				if err != nil {
					answers <- err.Error()
					return
				}
				defer res.Body.Close()
				b, _ := io.ReadAll(res.Body)
				answers <- string(b)
			}()
		}
		for range requests {
			if a := <-answers; a != "HTTP/2.0" {
				t.Errorf("answer = %q", a)
			}
		}
		if n := len(r.seen()); n != 1 {
			t.Errorf("%d tunnels, want 1", n)
		}
	}
}

// What stands before a body, after it and instead of it passes too.
func TestContinueAndTrailers(t *testing.T) {
	for name, way := range ways(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Expect") != "" && r.ContentLength > 1000 {
			w.Header().Set("Connection", "close")
			http.Error(w, "too large", http.StatusExpectationFailed)
			return
		}
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		fmt.Fprintf(w, "%d %s", len(b), r.Trailer.Get("X-Mark"))
		w.Header().Set("X-Sum", fmt.Sprint(len(b)))
		w.Header().Set(http.TrailerPrefix+"X-Late", "yes")
	})) {
		t.Run(name, func(t *testing.T) {
			c, u, _ := way(t)
			c.Timeout = patience
			c.Transport.(*http.Transport).ExpectContinueTimeout = patience
			for _, tt := range []struct {
				size, code int
			}{{10, 200}, {100_000, 417}} {
				if tt.code == 417 && strings.HasSuffix(name, "HTTP/2") {
					continue // there a server does not see what is expected
				}
				var read atomic.Bool
				req, err := http.NewRequest("POST", u, io.TeeReader(strings.NewReader(strings.Repeat("x", tt.size)), writer(func() { read.Store(true) })))
				if err != nil {
					t.Fatal(err)
				}
				req.ContentLength = int64(tt.size)
				req.Header.Set("Expect", "100-continue")
				if tt.code == 200 {
					req.ContentLength = -1
					req.Trailer = http.Header{"X-Mark": {"marked"}}
				}
				res, err := c.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err != nil || res.StatusCode != tt.code {
					t.Fatalf("%d bytes: %d %q, %v; want %d", tt.size, res.StatusCode, b, err, tt.code)
				}
				if read.Load() != (tt.code == 200) {
					t.Errorf("%d bytes with %d: the body was sent: %v", tt.size, tt.code, read.Load())
				}
				if tt.code == 200 && (string(b) != "10 marked" || res.Trailer.Get("X-Sum") != "10" || res.Trailer.Get("X-Late") != "yes") {
					t.Errorf("answer %q with trailers %v", b, res.Trailer)
				}
			}
		})
	}
}

// writer calls a function for everything written.
type writer func()

func (w writer) Write(p []byte) (int, error) {
	w()
	return len(p), nil
}

// The header of a request has a bound in bytes too.
func TestLargeHeaders(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("y", len(r.Header.Get("X-Large"))))
	}))
	defer up.Close()
	for size, want := range map[int]int{20 << 10: 200, 1 << 20: 431} {
		r := newRig(t, "")
		r.publish("a.example.com", "93.184.215.14", hostOf(up.URL), 80)
		conn := r.dial()
		_ = conn.SetDeadline(time.Now().Add(patience))
		go fmt.Fprintf(conn, "GET http://a.example.com/ HTTP/1.1\r\nHost: x\r\nX-Large: %s\r\n\r\n", strings.Repeat("x", size))
		res, err := http.ReadResponse(bufio.NewReaderSize(conn, 64<<10), nil)
		if err != nil || res.StatusCode != want || want == 200 && len(res.Header.Get("X-Large")) != size {
			t.Errorf("a header of %d bytes: %v, %v; want %d", size, res, err, want)
		}
	}
}
