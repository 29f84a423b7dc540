//go:build root

package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/test/harness"
)

// streams is a server whose answers go on for as long as they are wanted.
const streams = `import asyncio
async def serve(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    await reader.read()
    writer.close()
async def main():
    async with await asyncio.start_server(serve, "127.0.0.1", 3000, backlog=1024) as s:
        await s.serve_forever()
asyncio.run(main())
`

// TestVisitorsKeepNobodyFromASandbox: visitors of a public port who hold all the
// connections that there are leave the sandbox to its owner.
func TestVisitorsKeepNobodyFromASandbox(t *testing.T) {
	d := harness.Start(t, harness.Options{})
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			id := isolation
			succeed(t, "POST", d.URL+"/v1/sandboxes", fmt.Sprintf(`{"id":%q,"isolation":%q,"ports":[3000],"visibility":"public"}`, id, isolation), nil)
			succeed(t, "PUT", d.URL+"/v1/sandboxes/"+id+"/files?path=serve.py", streams, nil)
			exec := func(cmd string) string {
				t.Helper()
				var e struct {
					Stdout, Stderr string
					ExitCode       *int `json:"exit_code"`
				}
				succeed(t, "POST", d.URL+"/v1/sandboxes/"+id+"/exec", fmt.Sprintf(`{"cmd":%q}`, cmd), &e)
				if e.ExitCode == nil || *e.ExitCode != 0 {
					t.Fatalf("%s: %+v", cmd, e)
				}
				return e.Stdout
			}
			exec("python3 serve.py > log 2>&1 & until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 3000))' 2> /dev/null; do sleep 0.1; done")
			var port struct{ URL string }
			succeed(t, "GET", d.URL+"/v1/sandboxes/"+id+"/ports/3000", "", &port)
			u, err := url.Parse(port.URL)
			if err != nil {
				t.Fatal(err)
			}
			var held, refused atomic.Int64
			var visitors sync.WaitGroup
			conns := make([]net.Conn, 600)
			for i := range conns {
				visitors.Go(func() {
					conn, status, err := openStream(u)
					if err != nil {
						t.Error(err)
						return
					}
					conns[i] = conn
					switch status {
					case http.StatusOK:
						held.Add(1)
					case http.StatusServiceUnavailable:
						refused.Add(1)
					default:
						t.Errorf("a visitor is answered %d", status)
					}
				})
			}
			visitors.Wait()
			if held.Load() != 512 || refused.Load() != 88 {
				t.Errorf("%d visitors hold a connection and %d were refused, want 512 and 88", held.Load(), refused.Load())
			}
			if got := exec("echo owner"); got != "owner\n" {
				t.Errorf("a command printed %q", got)
			}
			succeed(t, "GET", d.URL+"/v1/sandboxes/"+id+"/files/content?path=serve.py", "", nil)
			for _, c := range conns {
				if c != nil {
					c.Close()
				}
			}
		})
	}
}

// openStream opens a stream and returns when its answer has begun.
func openStream(u *url.URL) (net.Conn, int, error) {
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", u.Port()))
	if err != nil {
		return nil, 0, err
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return conn, 0, err
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+u.Host+"\r\n\r\n"); err != nil {
		return conn, 0, err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return conn, 0, err
	}
	var status int
	_, err = fmt.Sscanf(line, "HTTP/1.1 %d", &status)
	return conn, status, err
}

// succeed makes a request of the API that succeeds.
func succeed(t *testing.T, method, address, body string, answer any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method == "PUT" {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		t.Fatalf("%s %s = %s %s, %v", method, address, res.Status, text, err)
	}
	if answer != nil {
		if err := json.NewDecoder(bytes.NewReader(text)).Decode(answer); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAttackAppsWriteNoLog: what an app sends beyond its answer is not printed by
// the daemon: it is as long as the app wants, for each visit.
func TestAttackAppsWriteNoLog(t *testing.T) {
	d := harness.Start(t, harness.Options{})
	succeed(t, "POST", d.URL+"/v1/sandboxes", `{"id":"a","isolation":"container","ports":[3000],"visibility":"public"}`, nil)
	answer := `b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst" + b"bytes-of-the-app" * 1000`
	app := strings.Replace(streams, `b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"`, answer, 1)
	succeed(t, "PUT", d.URL+"/v1/sandboxes/a/files?path=serve.py", app, nil)
	succeed(t, "POST", d.URL+"/v1/sandboxes/a/exec", `{"cmd":"python3 serve.py > log 2>&1 & until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 3000))' 2> /dev/null; do sleep 0.1; done"}`, nil)
	var port struct{ URL string }
	succeed(t, "GET", d.URL+"/v1/sandboxes/a/ports/3000", "", &port)
	u, err := url.Parse(port.URL)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		conn, status, err := openStream(u)
		if err != nil || status != http.StatusOK {
			t.Fatalf("a visit is %d, %v", status, err)
		}
		conn.Close()
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	if strings.Contains(d.Log(), "bytes-of-the-app") {
		t.Errorf("the daemon printed %d bytes", len(d.Log()))
	}
}
