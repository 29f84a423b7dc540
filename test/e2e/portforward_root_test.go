//go:build root

package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/test/harness"
)

// sums is a server that answers with what it was sent, and at its end with the
// sum of that.
const sums = `import hashlib, socket, threading
def serve(conn):
    h = hashlib.sha256()
    while data := conn.recv(1 << 16):
        h.update(data)
        conn.sendall(data)
    conn.sendall(h.hexdigest().encode())
    conn.close()
with socket.create_server(("127.0.0.1", 7000)) as s:
    while True:
        threading.Thread(target=serve, args=(s.accept()[0],)).start()
`

// TestPortForward: what a client sends comes back whole, and after the end of its
// direction the rest; the sandbox wakes for a connection; an interrupt is no
// failure.
func TestPortForward(t *testing.T) {
	d := harness.Start(t, harness.Options{})
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			id := isolation
			box := d.URL + "/v1/sandboxes/" + id
			succeed(t, "POST", d.URL+"/v1/sandboxes", fmt.Sprintf(`{"id":%q,"isolation":%q}`, id, isolation), nil)
			succeed(t, "PUT", box+"/files?path=serve.py", sums, nil)
			succeed(t, "POST", box+"/exec", `{"cmd":"python3 serve.py > log 2>&1 & until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 7000))' 2> /dev/null; do sleep 0.1; done"}`, nil)

			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, harness.Program(t), "--url", d.URL, "port-forward", id, "0:7000")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatalf("%v, %s", err, stderr.String())
			}
			dial := func() net.Conn {
				t.Helper()
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.Fields(line)[0])
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { conn.Close() })
				if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
					t.Fatal(err)
				}
				return conn
			}
			roundTrip := func() {
				t.Helper()
				conn := dial()
				sent := bytes.Repeat([]byte("sixteen bytes of\n"), 1<<20)
				go func() {
					_, _ = conn.Write(sent)
					_ = conn.(*net.TCPConn).CloseWrite()
				}()
				got, err := io.ReadAll(conn)
				want := append(bytes.Clone(sent), fmt.Sprintf("%x", sha256.Sum256(sent))...)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d bytes of %d came back, %v", len(got), len(want), err)
				}
			}
			roundTrip()
			if isolation == "gvisor" { // what runs is there again, and a connection is not
				silent := dial()
				if _, err := io.WriteString(silent, "x"); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(silent, make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				succeed(t, "POST", box+"/sleep", "", nil)
				// The server may still say what it says at the end of its input.
				if _, err := io.Copy(io.Discard, silent); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("a connection ends with a sleep as %v", err)
				}
				roundTrip()
			}
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("after an interrupt: %v, %s", err, stderr.String())
			}
		})
	}
}
