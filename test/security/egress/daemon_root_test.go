//go:build root

package egress_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/client"
)

// daemon is the program that users run, on the world's host.
type daemon struct {
	t         *testing.T
	dir       string
	api, grpc string // host:port
	client    *client.Client
	log       lockedBuffer
}

func startDaemon(t *testing.T, flags ...string) *daemon {
	t.Helper()
	program, images := realPaths(t)
	// Not below the test's directory: the paths of sockets are short.
	dir, err := os.MkdirTemp("/var/tmp", "cubby")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("left behind: %v", err)
		}
	})
	// Nobody else is in this network namespace.
	d := &daemon{t: t, dir: dir, api: "127.0.0.1:9090", grpc: "127.0.0.1:9091"}
	d.client = client.New("http://" + d.api)
	cmd := exec.Command(program, append([]string{
		"serve", "--listen", d.api, "--grpc-listen", d.grpc, "--data-dir", dir, "--image-dir", images,
		"--disk-pool", "1", "--log-level", "debug",
	}, flags...)...)
	cmd.Stdout, cmd.Stderr = &d.log, &d.log
	// Its processes see nothing of the world that the test marks as its own.
	cmd.Env = append(os.Environ(), insideVariable+"=")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	t.Cleanup(func() {
		d.destroyAll()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("stop the daemon: %v", err)
		}
		select {
		case err := <-exited:
			if err != nil {
				t.Errorf("the daemon stopped with %v", err)
			}
		case <-time.After(2 * patience):
			_ = cmd.Process.Kill()
			t.Errorf("the daemon did not stop: %v", <-exited)
		}
		if t.Failed() {
			t.Logf("the end of the daemon's log:\n%s", d.log.tail(16<<10))
		}
		d.unmount()
	})
	for late := time.After(2 * patience); ; {
		if res, err := http.Get("http://" + d.api + "/readyz"); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return d
			}
		}
		select {
		case err := <-exited:
			exited <- err
			t.Fatalf("the daemon ended with %v: %s", err, d.log.tail(16<<10))
		case <-late:
			t.Fatalf("the daemon does not get ready: %s", d.log.tail(16<<10))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (d *daemon) destroyAll() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	for box, err := range d.client.List(ctx, client.ListOptions{}) {
		if err != nil {
			d.t.Errorf("list: %v", err)
			return
		}
		if _, err := d.client.Purge(ctx, box.ID); err != nil {
			d.t.Errorf("purge %s: %v", box.ID, err)
		}
	}
}

// unmount releases the pool's disks, which outlive a daemon.
func (d *daemon) unmount() {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		d.t.Error(err)
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 2 || !strings.HasPrefix(f[1], d.dir+"/") {
			continue
		}
		if !strings.Contains(f[1], "/disks/pool/") {
			d.t.Errorf("left mounted: %s", f[1])
		}
		if err := syscall.Unmount(f[1], syscall.MNT_DETACH); err != nil {
			d.t.Errorf("unmount %s: %v", f[1], err)
		}
	}
}

// channels finds the channels' sockets of all sandboxes on the host.
func (d *daemon) channels() []string {
	d.t.Helper()
	var found []string
	err := filepath.WalkDir(filepath.Join(d.dir, "run"), func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type()&os.ModeSocket != 0 && e.Name() == "host.sock" {
			found = append(found, path)
		}
		return nil // directories come and go
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return found
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) tail(n int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.buf.String()
	return s[max(0, len(s)-n):]
}
