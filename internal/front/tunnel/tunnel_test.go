package tunnel_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
	"github.com/cubbyhq/cubby/internal/front/tunnel"
	"github.com/cubbyhq/cubby/internal/poll"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "secret-of-alice"

// world is a daemon with a sandbox "a" and a server, which listens on the loopback
// that the sandbox shares with the test.
type world struct {
	*client.Client
	t    *testing.T
	d    *daemontest.Daemon
	http *http.Client
	port int
}

func newWorld(t *testing.T, serve func(*net.TCPConn)) *world {
	t.Helper()
	w := &world{t: t, http: &http.Client{Transport: new(http.Transport)}}
	w.port = listen(t, serve)
	w.d = daemontest.Start(t, daemontest.Options{Config: func(c *config.Config) {
		c.Tokens = "alice:" + token + ",bob@other:secret-of-bob"
	}})
	w.Client = client.New(w.d.URL, client.WithToken(token), client.WithHTTPClient(w.http))
	t.Cleanup(w.Close)
	if _, err := w.Create(t.Context(), client.CreateOptions{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	return w
}

// listen serves connections on a port until the test ends.
func listen(t *testing.T, serve func(*net.TCPConn)) int {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				serve(conn.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return l.Addr().(*net.TCPAddr).Port
}

func (w *world) dial() *client.PortConn {
	w.t.Helper()
	conn, err := w.DialPort(w.t.Context(), "a", w.port)
	if err != nil {
		w.t.Fatalf("DialPort = %v", err)
	}
	w.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		w.t.Fatal(err)
	}
	return conn
}

// until waits for something to be so.
func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if err := poll.Until(ctx, 5*time.Millisecond, 50*time.Millisecond, func() (bool, error) { return is(), nil }); err != nil {
		w.t.Fatalf("it does not come that %s: %v", what, err)
	}
}

func (w *world) inUse() bool {
	w.t.Helper()
	b, err := w.Get(w.t.Context(), "a")
	if err != nil {
		w.t.Fatal(err)
	}
	return b.IdleAt == nil
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

func echo(conn *net.TCPConn) {
	_, _ = io.Copy(conn, conn)
	_ = conn.CloseWrite()
}

// A client that has ended its direction gets the whole answer: what the server
// knows only then.
func TestHalfClose(t *testing.T) {
	w := newWorld(t, func(conn *net.TCPConn) {
		sum := sha256.New()
		n, _ := io.Copy(sum, conn)
		fmt.Fprintf(conn, "%d %x", n, sum.Sum(nil))
	})
	for _, n := range []int{0, 1, 64 << 10, 8<<20 + 17} {
		sent, conn := random(n), w.dial()
		if _, err := conn.Write(sent); err != nil {
			t.Fatal(err)
		}
		if err := conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		if want := fmt.Sprintf("%d %x", n, sha256.Sum256(sent)); err != nil || string(got) != want {
			t.Errorf("after %d bytes: %q, %v, want %q", n, got, err, want)
		}
	}
}

// A server that ends its direction first still gets what comes.
func TestTheServerEndsFirst(t *testing.T) {
	got := make(chan []byte)
	w := newWorld(t, func(conn *net.TCPConn) {
		_, _ = io.WriteString(conn, "hello")
		_ = conn.CloseWrite()
		all, _ := io.ReadAll(conn)
		got <- all
	})
	conn := w.dial()
	if hello, err := io.ReadAll(conn); err != nil || string(hello) != "hello" {
		t.Fatalf("read %q, %v", hello, err)
	}
	sent := random(1 << 20)
	if _, err := conn.Write(sent); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if all := <-got; !bytes.Equal(all, sent) {
		t.Errorf("the server got %d bytes of %d", len(all), len(sent))
	}
	if _, err := conn.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a write after the end = %v", err)
	}
}

func TestBothWaysAtOnce(t *testing.T) {
	w := newWorld(t, echo)
	conn, sent := w.dial(), random(32<<20)
	written := make(chan error, 1)
	go func() {
		_, err := conn.Write(sent)
		if err == nil {
			err = conn.CloseWrite()
		}
		written <- err
	}()
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes of %d came back, %v", len(got), len(sent), err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}

// As many connections are open to one sandbox at once as visitors of its previews
// may have; one more is refused and ends none of them.
func TestManyConnections(t *testing.T) {
	w := newWorld(t, echo)
	const most = 512
	conns := make([]*client.PortConn, most)
	var dials sync.WaitGroup
	places := make(chan struct{}, 32)
	for i := range conns {
		places <- struct{}{}
		dials.Go(func() {
			defer func() { <-places }()
			conn, err := w.DialPort(t.Context(), "a", w.port)
			if err != nil {
				t.Errorf("connection %d: %v", i, err)
				return
			}
			conns[i] = conn
		})
	}
	dials.Wait()
	if t.Failed() {
		return
	}
	if _, err := w.DialPort(t.Context(), "a", w.port); !errors.Is(err, client.Capacity) {
		t.Errorf("connection %d = %v", most+1, err)
	}
	for i, conn := range conns {
		want := fmt.Sprint("connection ", i)
		if _, err := io.WriteString(conn, want); err != nil {
			t.Fatalf("%s: %v", want, err)
		}
		if err := conn.CloseWrite(); err != nil {
			t.Fatalf("%s: %v", want, err)
		}
	}
	for i, conn := range conns {
		got, err := io.ReadAll(conn)
		if want := fmt.Sprint("connection ", i); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v", want, got, err)
		}
		conn.Close()
	}
	w.until("there is room again", func() bool {
		conn, err := w.DialPort(t.Context(), "a", w.port)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// A client that closes, or is gone without a word, ends the connection to the
// server; what it wrote before it closed arrives.
func TestTheClientIsGone(t *testing.T) {
	got := make(chan string, 1)
	w := newWorld(t, func(conn *net.TCPConn) {
		all, _ := io.ReadAll(conn)
		got <- string(all)
	})
	conn := w.dial()
	if _, err := io.WriteString(conn, "last words"); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if all := <-got; all != "last words" {
		t.Errorf("the server got %q", all)
	}
	raw := w.raw()
	if err := raw.Write(t.Context(), websocket.MessageBinary, []byte("x")); err != nil {
		t.Fatal(err)
	}
	_ = raw.CloseNow()
	<-got
}

// raw is a connection without the SDK.
func (w *world) raw() *websocket.Conn {
	w.t.Helper()
	conn, _, err := websocket.Dial(w.t.Context(), fmt.Sprintf("%s/v1/sandboxes/a/ports/%d/connect", w.d.URL, w.port), &websocket.DialOptions{
		HTTPClient: w.http, HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}, Subprotocols: []string{tunnel.Subprotocol},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

// The end of the sandbox is not taken for the end of what the server had to say.
func TestTheSandboxIsGone(t *testing.T) {
	w := newWorld(t, echo)
	conn := w.dial()
	if _, err := io.WriteString(conn, "half of"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, len("half of"))); err != nil {
		t.Fatal(err)
	}
	if err := w.Destroy(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, client.Unavailable) {
		t.Errorf("a read after the end of the sandbox = %d, %v", n, err)
	}
}

func TestWhatIsNotConnected(t *testing.T) {
	w := newWorld(t, echo)
	nobody := listen(t, func(*net.TCPConn) {})
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().(*net.TCPAddr).Port
	l.Close()
	bob := client.New(w.d.URL, client.WithToken("secret-of-bob"), client.WithHTTPClient(w.http))
	stranger := client.New(w.d.URL, client.WithHTTPClient(w.http))
	for _, tt := range []struct {
		name string
		c    *client.Client
		id   string
		port int
		want client.Code
	}{
		{"nothing listens", w.Client, "a", closed, client.Unavailable},
		{"no sandbox", w.Client, "b", nobody, client.NotFound},
		{"another tenant's", bob, "a", w.port, client.NotFound},
		{"no token", stranger, "a", w.port, client.Unauthorized},
		{"no port", w.Client, "a", 0, client.InvalidRequest},
		{"no such port", w.Client, "a", 65536, client.InvalidRequest},
	} {
		if _, err := tt.c.DialPort(t.Context(), tt.id, tt.port); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
	for path, want := range map[string]int{"": 400, "?a=b": 400} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", fmt.Sprintf("%s/v1/sandboxes/a/ports/%d/connect%s", w.d.URL, w.port, path), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := w.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("a plain request%s is %d, want %d", path, res.StatusCode, want)
		}
	}
}

// On a daemon without tokens a page of another origin, as that of a preview, gets no
// connection; with tokens it needs one, which a browser does not have.
func TestAttackPagesThatConnect(t *testing.T) {
	for _, tokens := range []config.Secret{"", "alice:" + token} {
		d := daemontest.Start(t, daemontest.Options{Config: func(c *config.Config) { c.Tokens = tokens }})
		c := client.New(d.URL, client.WithToken(token), client.WithHTTPClient(&http.Client{Transport: new(http.Transport)}))
		t.Cleanup(c.Close)
		if _, err := c.Create(t.Context(), client.CreateOptions{ID: "a"}); err != nil {
			t.Fatal(err)
		}
		address := fmt.Sprintf("%s/v1/sandboxes/a/ports/%d/connect", d.URL, listen(t, echo))
		for _, origin := range []string{"http://evil.example", "null", "http://s-a-3000.preview.localhost:9091", "http://localhost:1"} {
			conn, res, err := websocket.Dial(t.Context(), address, &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {origin}, "Cookie": {"cubby_preview=x"}}})
			if err == nil {
				_ = conn.CloseNow()
				t.Errorf("a page of %s is connected, with tokens %q", origin, string(tokens))
			} else if res == nil || res.StatusCode != http.StatusForbidden && res.StatusCode != http.StatusUnauthorized {
				t.Errorf("a page of %s: %v", origin, err)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestWhatIsNoneOfTheProtocol(t *testing.T) {
	w := newWorld(t, echo)
	for name, tt := range map[string]struct {
		send func(*websocket.Conn) error
		want websocket.StatusCode
	}{
		"text": {func(c *websocket.Conn) error { return c.Write(t.Context(), websocket.MessageText, []byte("x")) }, websocket.StatusUnsupportedData},
		"bytes after the end": {func(c *websocket.Conn) error {
			return errors.Join(c.Write(t.Context(), websocket.MessageBinary, nil), c.Write(t.Context(), websocket.MessageBinary, []byte("x")))
		}, websocket.StatusPolicyViolation},
		"a message without end": {func(c *websocket.Conn) error {
			_ = c.Write(t.Context(), websocket.MessageBinary, make([]byte, 1<<20)) // it is closed before all is sent
			return nil
		}, websocket.StatusMessageTooBig},
	} {
		// The server keeps its direction open, so that nothing else ends first.
		w.port = listen(t, func(conn *net.TCPConn) {
			<-t.Context().Done()
		})
		conn := w.raw()
		if err := tt.send(conn); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != tt.want {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

// A connection is use when bytes flow, and not for as long as it is open. It
// wakes a sandbox that is stopped.
func TestUse(t *testing.T) {
	w := newWorld(t, echo)
	if _, err := w.Sleep(t.Context(), "a", true); err != nil {
		t.Fatal(err)
	}
	conn := w.dial()
	w.until("a silent connection is no use", func() bool { return !w.inUse() })
	before, err := w.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	after, err := w.Get(t.Context(), "a")
	if err != nil || !after.LastActiveAt.After(before.LastActiveAt) {
		t.Errorf("last active at %s and after bytes at %s, %v", before.LastActiveAt, after.LastActiveAt, err)
	}
	// It is not in the way of a sleep.
	if _, err := w.Sleep(t.Context(), "a", false); err != nil {
		t.Errorf("a sleep beside a silent connection: %v", err)
	}
}

func TestTheDaemonStops(t *testing.T) {
	w := newWorld(t, echo)
	conn := w.dial()
	ended := make(chan error, 1)
	go func() {
		_, err := conn.Read(make([]byte, 1))
		ended <- err
	}()
	if err := w.d.Stop(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, client.Unavailable) || !strings.Contains(err.Error(), "stopping") {
		t.Errorf("a read at the daemon's end = %v", err)
	}
}

func TestDeadlines(t *testing.T) {
	w := newWorld(t, echo)
	conn := w.dial()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read after its deadline = %v", err)
	}
}
