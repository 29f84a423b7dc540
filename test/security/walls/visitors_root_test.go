//go:build root

package walls_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/poll"
	"github.com/cubbyhq/cubby/test/harness"
)

// silentApp answers a request for /count with how many others it had, and to those
// nothing. It closes no connection, and of a body it reads the beginning.
const silentApp = `
import selectors, socket
s = selectors.DefaultSelector()
l = socket.socket()
l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
l.bind(("127.0.0.1", 3000))
l.listen(1024)
s.register(l, selectors.EVENT_READ)
kept, asked = [], 0
while True:
    for key, _ in s.select():
        if key.fileobj is l:
            c = l.accept()[0]
            kept.append(c)
            s.register(c, selectors.EVENT_READ)
            continue
        c = key.fileobj
        s.unregister(c)
        try: question = c.recv(100)
        except OSError: question = b""
        if question.startswith(b"GET /count"):
            text = str(asked).encode()
            c.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
            c.close()
            kept.remove(c)
        else:
            asked += 1
`

// The agent kept the connection of a visitor that had left for as long as the app did
// not close it: some hundreds of visits without a token, and nobody reached a port of
// the sandbox any more.
func TestVisitorsThatLeaveGiveTheirConnectionsBack(t *testing.T) {
	c := client.New(harness.Start(t, harness.Options{}).URL)
	for name, visit := range map[string]func(app preview, id string) (io.WriteCloser, error){
		"by a request": func(app preview, _ string) (io.WriteCloser, error) {
			return app.visit("GET /slow HTTP/1.1\r\nHost: %s\r\n\r\n")
		},
		"by a request with a body that the app does not read": func(app preview, _ string) (io.WriteCloser, error) {
			conn, err := app.visit("POST /slow HTTP/1.1\r\nHost: %s\r\nContent-Length: 100000000\r\n\r\n")
			if err == nil {
				go func() { _, _ = conn.Write(make([]byte, 1<<20)) }() // more than is on its way; until it is closed
				err = conn.(*net.TCPConn).SetLinger(0)                 // its end is not to wait for that
			}
			return conn, err
		},
		"over the API": func(_ preview, id string) (io.WriteCloser, error) {
			conn, err := c.DialPort(t.Context(), id, 3000)
			if err == nil {
				_, err = io.WriteString(conn, "GET /slow HTTP/1.1\r\n\r\n")
			}
			return conn, err
		},
	} {
		for _, isolation := range []string{"gvisor", "container"} {
			t.Run(name+" in "+isolation, func(t *testing.T) {
				b, err := c.Create(t.Context(), client.CreateOptions{
					Isolation: isolation, Visibility: "public", Ports: []int{3000},
					Services: []client.ServiceSpec{{Name: "app", Command: "exec python3 -c '" + silentApp + "'", Port: 3000}},
				})
				if err != nil {
					t.Fatal(err)
				}
				address, err := c.PortURL(t.Context(), b.ID, 3000)
				if err != nil {
					t.Fatal(err)
				}
				app := preview{t, address}
				// More than there are connections, and never as many at once.
				for range 4 {
					app.visited(250, func() (io.WriteCloser, error) { return visit(app, b.ID) })
				}
				if x, err := c.Exec(t.Context(), b.ID, client.Shell("echo here")); err != nil || x.Stdout != "here\n" {
					t.Errorf("a command afterwards: %v, %q", err, x.Stdout)
				}
				if err := c.Destroy(t.Context(), b.ID); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// visited has so many visitors come until the app has met them, and leave. Those that
// are refused, because others are still leaving, come again.
func (p preview) visited(n int, visit func() (io.WriteCloser, error)) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), harness.Patience)
	defer cancel()
	var visitors []io.Closer
	defer func() {
		for _, v := range visitors {
			_ = v.Close() // of some the connection is closed already
		}
	}()
	before := p.met(ctx)
	for met := 0; met < n; met = max(0, p.met(ctx)-before) {
		if ctx.Err() != nil {
			p.t.Fatalf("of %d visitors the app met %d", n, met)
		}
		come := n - met
		for range come {
			if v, err := visit(); err == nil {
				visitors = append(visitors, v)
			}
		}
		soon, cancel := context.WithTimeout(ctx, 5*time.Second)
		_ = poll.Until(soon, 20*time.Millisecond, 500*time.Millisecond, func() (bool, error) { return p.met(soon)-before >= n, nil })
		cancel()
	}
}

// met asks the app how many visitors it has met, until it answers; 0 if it does not.
func (p preview) met(ctx context.Context) (n int) {
	p.t.Helper()
	_ = poll.Until(ctx, 20*time.Millisecond, 500*time.Millisecond, func() (ok bool, err error) {
		n, ok = p.ask(ctx)
		return ok, nil
	})
	return n
}

// preview is an app behind the preview of a port.
type preview struct {
	t       *testing.T
	address string
}

// visit sends the beginning of a request.
func (p preview) visit(request string) (net.Conn, error) {
	u, err := url.Parse(p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	conn, err := net.Dial("tcp", "127.0.0.1:"+u.Port())
	if err == nil {
		_, err = fmt.Fprintf(conn, request, u.Host)
	}
	return conn, err
}

// ask asks the app how many visitors it had; false when it does not answer.
func (p preview) ask(ctx context.Context) (n int, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.address+"count", http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		_, port, _ := net.SplitHostPort(address)
		return new(net.Dialer).DialContext(ctx, network, "127.0.0.1:"+port)
	}}}
	res, err := client.Do(req)
	if err != nil {
		return 0, false
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil {
		n, err = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	return n, err == nil
}
