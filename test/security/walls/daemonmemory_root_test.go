//go:build root

package walls_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/test/harness"
)

// TestMemoryOfADaemonOfRealSandboxes: what a sandbox makes large, output that JSON writes
// six times as long and listings of such names, takes little of the daemon also where an
// agent has it, and clients do not read it. Attacks by more clients, on sandboxes without
// walls, are those of the package resources.
func TestMemoryOfADaemonOfRealSandboxes(t *testing.T) {
	const (
		most    = 300 << 20 // what the daemon may take of the host whatever clients do
		readers = 100
	)
	d := harness.Start(t, harness.Options{})
	c := client.New(d.URL)
	address := strings.TrimPrefix(d.URL, "http://")
	// begin sends a question and reads the beginning of its answer alone, whose status it
	// returns.
	begin := func(t *testing.T, path string) string {
		t.Helper()
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, address); err != nil {
			t.Fatal(err)
		}
		head := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(conn, head); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		// A listing may be too large for one answer, and a daemon that has much to do says so.
		got := string(head[len("HTTP/1.1 "):])
		if got != "200" && got != "413" && got != "503" {
			t.Errorf("%s: %s", path, got)
		}
		return got
	}
	bounded := func(t *testing.T, after string) {
		t.Helper()
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.PID()))
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ := strings.Cut(string(status), "VmHWM:")
		text, _, _ = strings.Cut(text, "kB")
		kib, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("after %s: at most %d MiB", after, kib>>10)
		if kib<<10 > most {
			t.Errorf("%s: the daemon took %d MiB, want at most %d", after, kib>>10, most>>20)
		}
	}
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			b, err := c.Create(t.Context(), client.CreateOptions{Isolation: isolation})
			if err != nil {
				t.Fatal(err)
			}
			box := "/v1/sandboxes/" + b.ID
			p, err := c.StartExec(t.Context(), b.ID, client.Shell(`head -c 25165824 /dev/zero | tr '\0' '\1'`))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			began := 0
			for range readers {
				if begin(t, box+"/execs/1?max_output_bytes=67108864") == "200" {
					began++
				}
			}
			if began == 0 {
				t.Error("no answer with the output began")
			}
			bounded(t, "output that nobody reads")
			x, err := c.Exec(t.Context(), b.ID, client.Shell(
				`mkdir many; cd many; n=$(head -c 220 /dev/zero | tr '\0' '\1'); for i in $(seq 8000); do echo "$n$i"; done | xargs -n 500 touch`))
			if err != nil || x.ExitCode == nil || *x.ExitCode != 0 {
				t.Fatalf("%+v, %v", x, err)
			}
			for range 8 {
				begin(t, box+"/files?recursive=true&path=many")
			}
			bounded(t, "listings that nobody reads")
			if x, err := c.Exec(t.Context(), b.ID, client.ExecOptions{Argv: []string{"echo", "alive"}}); err != nil || x.Stdout != "alive\n" {
				t.Errorf("after that: %+v, %v", x, err)
			}
		})
	}
}
