// Package resources_test attacks what all clients of a daemon share: its
// memory, its connections and its places. The daemon is a process of its own,
// whose memory the kernel counts; its sandboxes have no walls, which these
// attacks are not about.
package resources_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/collector"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

const (
	// mostMemory is what the daemon may take of the host whatever clients do.
	mostMemory = 300 << 20
	acme       = "acme-secret-1234"
	other      = "other-secret-1234"
	operator   = "operator-secret-1234"
)

// BenchmarkDaemon is the daemon's process. It runs until its standard input
// ends.
func BenchmarkDaemon(b *testing.B) {
	collector.Server() // as cubby serve
	d := daemontest.Start(b, daemontest.Options{Config: func(c *config.Config) {
		c.Tokens = config.Secret("web@acme:" + acme + ",web2@other:" + other + ",op:" + operator)
	}, Dir: os.Getenv(dataDir)})
	fmt.Printf("URL %s\n", d.URL)
	_, _ = io.Copy(io.Discard, os.Stdin) // it ends when the test does
}

// dataDir is the environment variable with the data directory of that process.
const dataDir = "DATA_DIR_OF_THE_DAEMON"

type daemon struct {
	t       *testing.T
	address string
	pid     int
	stop    func()

	mu    sync.Mutex
	conns []net.Conn // guarded by mu
}

func start(t *testing.T) *daemon { return startIn(t, "") }

// startIn starts a daemon in a data directory; "" is one of its own.
func startIn(t *testing.T, dir string) *daemon {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^$", "-test.bench=^BenchmarkDaemon$", "-test.benchtime=1x")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOGC=") }) // see collector.Server
	cmd.Env = append(cmd.Env, dataDir+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	d := &daemon{t: t, pid: cmd.Process.Pid}
	for d.address == "" && lines.Scan() {
		if _, url, ok := strings.Cut(lines.Text(), "URL http://"); ok {
			d.address = url
		}
	}
	var rest sync.WaitGroup
	rest.Go(func() { _, _ = io.Copy(io.Discard, out) }) // what a benchmark says at its end
	d.stop = sync.OnceFunc(func() {
		_ = in.Close() // it ends the daemon
		rest.Wait()
		_ = cmd.Wait() // killed sandboxes are not this test's
	})
	t.Cleanup(d.stop)
	if d.address == "" {
		t.Fatal("the daemon did not start")
	}
	return d
}

// client is the SDK's with a token.
func (d *daemon) client(token string) *client.Client {
	c := client.New("http://"+d.address, client.WithToken(token))
	d.t.Cleanup(func() { c.Close() })
	return c
}

// send begins a request on a connection of its own, whose client takes few
// bytes at a time, and leaves it open.
func (d *daemon) send(token, request, body string) net.Conn {
	d.t.Helper()
	conn, err := net.Dial("tcp", d.address)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = conn.Close() })
	d.mu.Lock()
	d.conns = append(d.conns, conn)
	d.mu.Unlock()
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		d.t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		d.t.Fatal(err)
	}
	// A server that refuses does not read the rest.
	_, _ = io.Copy(conn, io.MultiReader(strings.NewReader(request+"\r\nHost: cubby\r\nAuthorization: Bearer "+token+"\r\n\r\n"), strings.NewReader(body)))
	return conn
}

// hangUp ends all requests that are open.
func (d *daemon) hangUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, conn := range d.conns {
		_ = conn.Close() // it is closed again
	}
	d.conns = nil
}

// crowd has n clients do the same at once, few of them at a time: the test is
// not to be what is short of something.
func crowd(n int, do func()) {
	var all sync.WaitGroup
	turns := make(chan struct{}, 16)
	for range n {
		turns <- struct{}{}
		all.Go(func() { defer func() { <-turns }(); do() })
	}
	all.Wait()
}

// get begins a request whose answer is not read beyond its status.
func (d *daemon) get(token, request, body string) string {
	d.t.Helper()
	conn := d.send(token, request, body)
	head := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(conn, head); err != nil {
		d.t.Errorf("%.80s: %v", request, err)
	}
	return string(head[len("HTTP/1.1 "):])
}

// unread has many clients ask for what is large and read nothing of it: some
// are answered, the others are told to come again.
func (d *daemon) unread(n int, what, token, request, body string) {
	d.t.Helper()
	var mu sync.Mutex
	statuses := make(map[string]int)
	crowd(n, func() {
		status := d.get(token, request, body)
		mu.Lock()
		defer mu.Unlock()
		statuses[status]++
	})
	if statuses["200"]+statuses["503"] != n {
		d.t.Errorf("%s: answers %v, want 200 or 503", what, statuses)
	}
	d.bounded(fmt.Sprintf("%d × %s (%v)", n, what, statuses))
}

// bounded fails when the daemon has taken more than it may at any time.
func (d *daemon) bounded(after string) {
	d.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.pid))
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.Fields(text)[0])
			if err != nil {
				d.t.Fatal(err)
			}
			d.t.Logf("after %s: at most %d MiB", after, kib>>10)
			if kib<<10 > mostMemory {
				d.t.Errorf("%s: the daemon took %d MiB, want less than %d", after, kib>>10, mostMemory>>20)
			}
		}
	}
}

func run(t *testing.T, c *client.Client, id, script string) {
	t.Helper()
	x, err := c.Exec(t.Context(), id, client.Shell(script))
	if err != nil || x.ExitCode == nil || *x.ExitCode != 0 {
		t.Fatalf("%s: %+v, %v", script, x, err)
	}
}

// TestMemoryOfTheDaemon: answers that nobody reads, listings of long names and
// bodies that never end, a thousand connections of them, one kind after
// another and all kept open.
func TestMemoryOfTheDaemon(t *testing.T) {
	d := start(t)
	c := d.client(acme)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	box, err := c.Create(ctx, client.CreateOptions{ID: "box"})
	if err != nil {
		t.Fatal(err)
	}
	id := box.ID
	p, err := c.StartExec(ctx, id, client.Shell(`head -c 25165824 /dev/zero | tr '\0' '\1'`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(ctx); err != nil {
		t.Fatal(err)
	}

	// 24 MiB of output that JSON writes as 144.
	crowd(400, func() {
		conn := d.send(acme, "GET /v1/sandboxes/"+id+"/execs/1?max_output_bytes=67108864 HTTP/1.1", "")
		if _, err := io.ReadFull(conn, make([]byte, 1<<10)); err != nil {
			t.Errorf("an answer did not begin: %v", err)
		}
	})
	d.bounded("400 readers that do not read")

	// 16,000 files whose names JSON writes six times as long.
	run(t, c, id, `mkdir many; cd many; n=$(head -c 220 /dev/zero | tr '\0' '\1'); for i in $(seq 16000); do echo "$n$i"; done | xargs -n 500 touch`)
	for range 4 {
		conn := d.send(acme, "GET /v1/sandboxes/"+id+"/files?recursive=true&path=many HTTP/1.1", "")
		head := make([]byte, len("HTTP/1.1 413"))
		if _, err := io.ReadFull(conn, head); err != nil || string(head) != "HTTP/1.1 413" && string(head) != "HTTP/1.1 503" {
			t.Errorf("a listing that is too large: %q, %v", head, err)
		}
	}
	d.bounded("listings of long names")

	// Bodies whose ends do not come.
	half := strings.Repeat("A", 4<<20)
	for name, body := range map[string]string{
		"/sandbox/" + id + "/fs":               `{"path":"x","content_b64":"` + half,
		"/mcp":                                 `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"import_files","arguments":{"x":"` + half,
		"/v1/sandboxes/" + id + "/imports":     `{"files":[{"file_content":"` + half,
		"/v1/sandboxes/" + id + "/exec":        `{"cmd":"` + half[:1<<20-100],
		"/sandbox.v1.SandboxService/WriteFile": `{"content":"` + half,
	} {
		crowd(50, func() {
			d.send(acme, "POST "+name+" HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: "+strconv.Itoa(len(body)+100), body)
		})
		d.bounded("half a body to " + name)
	}
	d.lists(ctx)

	// The others go on.
	for _, token := range []string{other, operator} {
		if _, err := d.client(token).Create(ctx, client.CreateOptions{}); err != nil {
			t.Errorf("another client meanwhile: %v", err)
		}
	}
	big := bytes.Repeat([]byte("x"), 8<<20)
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+d.address+"/v1/sandboxes/"+id+"/files?path=big", bytes.NewReader(big))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+operator)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("an upload meanwhile: %s", res.Status)
	}
}

// lists are of what a tenant has filled with text that JSON writes six times as
// long: commands, their history and events, sandboxes, and files as gRPC reads
// them.
func (d *daemon) lists(ctx context.Context) {
	t := d.t
	t.Helper()
	c := d.client(other)
	box, err := c.Create(ctx, client.CreateOptions{ID: "other"})
	if err != nil {
		t.Fatal(err)
	}
	control := strings.Repeat("\x01", 16<<10)
	crowd(40, func() {
		if _, err := c.Exec(ctx, box.ID, client.Shell(": '"+control+"'; head -c 16384 /dev/zero | tr '\\0' '\\1'")); err != nil {
			t.Error(err)
		}
	})
	metadata := make(map[string]string)
	for i := range 9 {
		metadata[fmt.Sprint(i)] = control
	}
	for range 6 {
		if _, err := c.Create(ctx, client.CreateOptions{Metadata: metadata}); err != nil {
			t.Fatal(err)
		}
	}
	run(t, c, box.ID, "head -c 1500000 /dev/zero >file")

	read := `{"session_id":"other","path":"file"}`
	byGRPC := "POST /sandbox.v1.SandboxService/ReadFile HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(read))
	path := "GET /v1/sandboxes/" + box.ID
	d.unread(60, "lists of commands", other, path+"/execs?limit=1000 HTTP/1.1", "")
	d.unread(40, "histories", other, "GET /sandbox/"+box.ID+"/history?limit=999 HTTP/1.1", "")
	d.unread(40, "lists of events", other, path+"/events?limit=1000 HTTP/1.1", "")
	crowd(150, func() { d.get(other, path+"/events?follow=true HTTP/1.1", "") })
	d.bounded("150 followers of events")
	d.unread(40, "lists of sandboxes", other, "GET /v1/sandboxes?limit=1000 HTTP/1.1", "")
	d.unread(40, "files by gRPC", other, byGRPC, read)

	// Who looks after the daemon is answered.
	for _, request := range []string{"GET /v1/sandboxes?limit=1000 HTTP/1.1", path + "/execs HTTP/1.1"} {
		if status := d.get(operator, request, ""); status != "200" {
			t.Errorf("%s of the operator meanwhile: %s", request, status)
		}
	}
	d.bounded("the operator")
}
