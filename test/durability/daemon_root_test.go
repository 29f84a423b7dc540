//go:build root

package durability_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is what anything may take on a busy machine.
const patience = 2 * time.Minute

// daemon is the program as a child process.
type daemon struct {
	t         *testing.T
	isolation string
	database  string // URL; "" is SQLite
	dir, url  string

	program, images string
	cmd             *exec.Cmd
	log             *syncBuffer
}

func (d *daemon) prepare() {
	d.program, d.images = programs(d.t)
	// The paths of sockets are short.
	dir, err := os.MkdirTemp("/var/tmp", "cubby")
	if err != nil {
		d.t.Fatal(err)
	}
	d.dir = dir
	d.t.Cleanup(d.clean)
}

// launch starts the process and does not wait for it.
func (d *daemon) launch() {
	d.t.Helper()
	d.url = "http://" + d.freeAddress()
	d.log = &syncBuffer{}
	d.cmd = exec.Command(d.program, "serve", "--listen", d.url[len("http://"):], "--data-dir", d.dir, "--image-dir", d.images,
		"--disk-pool", "2", "--journal-per-exec", "16MiB", "--journal-per-sandbox", "64MiB", "--log-level", "debug")
	d.cmd.Env = append(os.Environ(), "CUBBY_DATABASE_URL="+d.database)
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
}

// start starts it and waits until it is ready: what an earlier one left is in
// order then.
func (d *daemon) start() {
	d.t.Helper()
	d.launch()
	var last string
	ready := d.within(func() bool {
		if d.exited() {
			d.t.Fatalf("the daemon ended: %s", d.log)
		}
		res, err := (&http.Client{Timeout: patience}).Get(d.url + "/readyz")
		if err != nil {
			last = err.Error()
			return false
		}
		defer res.Body.Close()
		var text bytes.Buffer
		_, _ = text.ReadFrom(res.Body) // for people
		last = text.String()
		return res.StatusCode == http.StatusOK
	})
	if !ready {
		d.t.Fatalf("the daemon does not get ready: %s", last)
	}
}

// within waits for a condition.
func (d *daemon) within(cond func() bool) bool {
	for deadline := time.Now().Add(patience); !cond(); {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return true
}

// exited reports whether the child has ended, and reaps it then.
func (d *daemon) exited() bool {
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(d.cmd.Process.Pid, &status, syscall.WNOHANG, nil)
	return err != nil || pid == d.cmd.Process.Pid
}

func (d *daemon) kill() {
	d.t.Helper()
	if d.exited() {
		d.t.Fatalf("the daemon ended by itself: %s", d.log)
	}
	if err := d.cmd.Process.Kill(); err != nil {
		d.t.Fatal(err)
	}
	_ = d.cmd.Wait() // it was killed
	d.cmd = nil
}

func (d *daemon) stop() {
	d.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		d.t.Fatal(err)
	}
	if err := d.cmd.Wait(); err != nil {
		d.t.Errorf("the daemon stopped with %v: %s", err, d.log)
	}
	d.cmd = nil
}

// clean leaves nothing behind, also after a failure.
func (d *daemon) clean() {
	if d.t.Failed() && d.log != nil {
		d.t.Logf("the daemon's log:\n%s", d.log)
	}
	if d.cmd != nil && !d.exited() {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait() // it was killed
	}
	d.cmd = nil
	if left := d.traces(); d.t.Failed() && len(left) > 0 {
		d.start()
		destroyAll(d.t, d.url)
		d.stop()
	}
	for _, m := range mountsBelow(d.dir) {
		_ = syscall.Unmount(m, syscall.MNT_DETACH) // RemoveAll tells
	}
	if err := os.RemoveAll(d.dir); err != nil {
		d.t.Errorf("left behind: %v", err)
	}
}

// freeAddress is below the range that the kernel gives to whoever asks for any
// port, so that nobody else gets it before the daemon does.
func (d *daemon) freeAddress() string {
	d.t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000))
		l, err := net.Listen("tcp", address)
		if err == nil {
			if err := l.Close(); err != nil {
				d.t.Fatal(err)
			}
			return address
		}
	}
	d.t.Fatal("no free port between 20000 and 30000")
	return ""
}

// syncBuffer is written by a process and read by a test.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
