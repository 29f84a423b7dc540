package ports_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/ports"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseRule(t *testing.T) {
	for text, want := range map[string]ports.Rule{
		"3000":                {Listen: "127.0.0.1:3000", Port: 3000},
		"8080:3000":           {Listen: "127.0.0.1:8080", Port: 3000},
		"0:3000":              {Listen: "127.0.0.1:0", Port: 3000},
		":3000":               {Listen: "127.0.0.1:0", Port: 3000},
		"127.0.0.2::3000":     {Listen: "127.0.0.2:0", Port: 3000},
		"0.0.0.0:8080:65535":  {Listen: "0.0.0.0:8080", Port: 65535},
		"localhost:8080:3000": {Listen: "localhost:8080", Port: 3000},
		"[::1]:8080:3000":     {Listen: "[::1]:8080", Port: 3000},
	} {
		if got, err := ports.ParseRule(text); err != nil || got != want {
			t.Errorf("%q = %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0", "8080:0", "65536", "-1", "+1", "a", "a:3000", "8080:", "8080:b", "::1:8080:3000", ":8080:3000", "h:65536:1", "1:2:3:4", "8080:3000/udp"} {
		if got, err := ports.ParseRule(text); err == nil {
			t.Errorf("%q = %+v", text, got)
		}
	}
}

// forwarding is a Forward that runs.
type forwarding struct {
	t     *testing.T
	out   *bufio.Reader
	stop  func() error
	mu    sync.Mutex
	notes []string // guarded by mu
}

func (f *forwarding) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notes = append(f.notes, fmt.Sprintf(format, args...))
}

// address is where the next rule listens.
func (f *forwarding) address() string {
	f.t.Helper()
	line, err := f.out.ReadString('\n')
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.Fields(line)[0]
}

func (f *forwarding) dial(address string) *net.TCPConn {
	f.t.Helper()
	conn, err := new(net.Dialer).DialContext(f.t.Context(), "tcp", address)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		f.t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// reset is how a connection ends that is not to be; it may before the dial returns.
func (f *forwarding) reset(address string) error {
	f.t.Helper()
	conn, err := new(net.Dialer).DialContext(f.t.Context(), "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		f.t.Fatal(err)
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

func newClient(t *testing.T, url string) *client.Client {
	c := client.New(url, client.WithHTTPClient(&http.Client{Transport: new(http.Transport)}))
	t.Cleanup(c.Close)
	return c
}

func forward(t *testing.T, c *client.Client, texts ...string) *forwarding {
	t.Helper()
	rules, err := ports.ParseRules(texts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	f := &forwarding{t: t, out: bufio.NewReader(read)}
	done := make(chan error, 1)
	go func() { done <- ports.Forward(ctx, c, "a", rules, write, f.note) }()
	f.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := f.stop(); err != nil {
			t.Errorf("Forward = %v", err)
		}
	})
	return f
}

// echo serves connections on a port, with the end of their input as theirs.
func echo(t *testing.T) int {
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
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return l.Addr().(*net.TCPAddr).Port
}

// A client that ends its direction gets the rest, on each of the ports; a
// connection to a port on which nothing listens is reset, and the others go on.
// An interrupt ends all without an error.
func TestForward(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	c := newClient(t, d.URL)
	if _, err := c.Create(t.Context(), client.CreateOptions{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().(*net.TCPAddr).Port
	l.Close()
	f := forward(t, c, fmt.Sprintf("0:%d", echo(t)), fmt.Sprintf(":%d", echo(t)), fmt.Sprintf("0:%d", closed))
	first, second, third := f.address(), f.address(), f.address()
	kept := f.dial(first)
	if err := f.reset(third); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("where nothing listens a connection ends as %v", err)
	}
	for _, address := range []string{first, second} {
		conn, sent := f.dial(address), strings.Repeat("0123456789abcdef", 1<<16)
		go func() {
			_, _ = io.WriteString(conn, sent)
			_ = conn.CloseWrite()
		}()
		if got, err := io.ReadAll(conn); err != nil || string(got) != sent {
			t.Errorf("%s: %d bytes of %d, %v", address, len(got), len(sent), err)
		}
	}
	if _, err := io.WriteString(kept, "x"); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(kept, make([]byte, 1)); err != nil {
		t.Errorf("a connection from before: %v", err)
	}
	if err := f.stop(); err != nil {
		t.Errorf("Forward = %v", err)
	}
	if _, err := kept.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlives the command")
	}
	if len(f.notes) != 1 || !strings.Contains(f.notes[0], fmt.Sprintf("nothing listens on port %d", closed)) {
		t.Errorf("noted %q", f.notes)
	}
}

// What came before the end of the sandbox is not taken for all that was to come.
func TestForwardFromASandboxThatGoes(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	c := newClient(t, d.URL)
	if _, err := c.Create(t.Context(), client.CreateOptions{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	f := forward(t, c, fmt.Sprintf("0:%d", echo(t)))
	address := f.address()
	conn := f.dial(address)
	if _, err := io.WriteString(conn, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := c.Destroy(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a read after the end of the sandbox = %v", err)
	}
	if err := f.reset(address); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection after the end of the sandbox = %v", err)
	}
}

func TestForwardNowhere(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	c := newClient(t, d.URL)
	if err := ports.Forward(t.Context(), c, "none", []ports.Rule{{Listen: "127.0.0.1:0", Port: 1}}, io.Discard, nil); !errors.Is(err, client.NotFound) {
		t.Errorf("to no sandbox: %v", err)
	}
	if _, err := c.Create(t.Context(), client.CreateOptions{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = ports.Forward(t.Context(), c, "a", []ports.Rule{{Listen: "127.0.0.1:0", Port: 1}, {Listen: l.Addr().String(), Port: 1}}, io.Discard, nil)
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("on a taken port: %v", err)
	}
}
