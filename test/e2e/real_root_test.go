//go:build root

package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestReal runs all scripts against the program that users run, with real
// sandboxes of both isolations on the image "base". It needs bin/cubby (make
// build) and the image (make test builds both).
func TestReal(t *testing.T) {
	t.Parallel()
	program, images := realPaths(t)
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			testscript.Run(t, params([]string{"api", "real"}, func(env *testscript.Env) host {
				return &realHost{t: env.T().(testing.TB), program: program, images: images}
			}, "real", isolation))
		})
	}
}

// realPaths finds the program and the images.
func realPaths(t *testing.T) (program, images string) {
	t.Helper()
	program = os.Getenv("CUBBY_TEST_BIN")
	if program == "" {
		program = "../../bin/cubby"
	}
	program, err := filepath.Abs(program)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: run make build first", err)
	}
	images = os.Getenv("CUBBY_TEST_IMAGE_DIR")
	if images == "" {
		images = "../../.cache/images"
	}
	if images, err = filepath.Abs(images); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(images, "names.json")); err != nil {
		t.Fatalf("%v: build the image base into CUBBY_TEST_IMAGE_DIR first", err)
	}
	return program, images
}

// realHost runs the program as a child process.
type realHost struct {
	t               testing.TB
	program, images string
	database        string // URL of a PostgreSQL; "" is SQLite

	dir string
	url string
	cmd *exec.Cmd
	log logBuffer
	// guard ends a daemon that a test hangs on, with all its goroutines in the
	// log: then the test does too.
	guard *time.Timer
}

// logBuffer is written by a daemon while the test reads it.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *logBuffer) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text.Reset()
}

func (h *realHost) start(flags []string) (url string, err error) {
	for range 5 {
		if url, err = h.tryStart(flags); err == nil || !strings.Contains(err.Error(), "address already in use") {
			break
		}
	}
	return url, err
}

func (h *realHost) tryStart(flags []string) (string, error) {
	if h.dir == "" {
		// Not below the script's directory: the paths of sockets are short.
		dir, err := os.MkdirTemp("/var/tmp", "cubby")
		if err != nil {
			return "", err
		}
		h.dir = dir
		h.t.Cleanup(h.clean)
	}
	port, err := freePort()
	if err != nil {
		return "", err
	}
	h.log.Reset()
	h.cmd = exec.Command(h.program, append([]string{
		"serve", "--listen", fmt.Sprintf("127.0.0.1:%d", port), "--data-dir", h.dir, "--image-dir", h.images, "--disk-pool", "1",
		"--journal-per-exec", "32MiB", "--journal-per-sandbox", "64MiB", "--log-level", "debug",
	}, flags...)...)
	h.cmd.Stdout, h.cmd.Stderr = &h.log, &h.log
	if h.database != "" {
		h.cmd.Env = append(os.Environ(), "CUBBY_DATABASE_URL="+h.database)
	}
	if err := h.cmd.Start(); err != nil {
		return "", err
	}
	running := h.cmd.Process
	h.guard = time.AfterFunc(3*patience/2, func() { _ = running.Signal(syscall.SIGQUIT) })
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	for deadline := time.Now().Add(2 * time.Minute); ; {
		if h.exited() {
			return "", fmt.Errorf("the daemon ended: %s", h.log.String())
		}
		res, err := http.Get(url + "/healthz")
		if err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				h.url = url
				return url, nil
			}
		}
		if time.Now().After(deadline) {
			_ = h.kill()
			return "", fmt.Errorf("the daemon does not answer: %w", errors.Join(err, errors.New(h.log.String())))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// environ tells scripts where the program and its data are.
func (h *realHost) environ() map[string]string {
	return map[string]string{"CUBBY": h.program, "DATA": h.dir}
}

// exited reports whether the child has ended, and reaps it then.
func (h *realHost) exited() bool {
	var info syscall.WaitStatus
	pid, err := syscall.Wait4(h.cmd.Process.Pid, &info, syscall.WNOHANG, nil)
	return err != nil || pid == h.cmd.Process.Pid
}

func (h *realHost) stop() error {
	if h.cmd == nil {
		return nil
	}
	defer func() { h.cmd = nil }()
	h.guard.Stop()
	if err := h.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- h.cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			h.t.Errorf("the daemon stopped with: %v\n%s", err, h.log.String())
		}
		return err
	case <-time.After(2 * time.Minute):
		_ = h.cmd.Process.Signal(syscall.SIGQUIT)
		<-done
		h.t.Errorf("the daemon did not stop within two minutes\n%s", h.log.String())
		return errors.New("the daemon did not stop")
	}
}

func (h *realHost) kill() error {
	if h.cmd == nil {
		return nil
	}
	h.guard.Stop()
	err := h.cmd.Process.Kill()
	_ = h.cmd.Wait() // it was killed
	h.cmd = nil
	return err
}

// clean destroys every sandbox that the script left and checks that nothing of
// them stays on the host.
func (h *realHost) clean() {
	if h.t.Failed() {
		h.t.Logf("the daemon's log:\n%s", h.log.String())
	}
	// The daemon that runs can do it, unless it asks for tokens.
	if h.cmd == nil || destroyAll(h.url) != nil {
		_ = h.stop() // says so itself
		if _, err := h.start(nil); err != nil {
			h.t.Errorf("start again to clean up: %v", err)
			return
		}
		if err := destroyAll(h.url); err != nil {
			h.t.Error(err)
		}
	}
	if err := h.stop(); err != nil {
		h.t.Errorf("stop: %v", err)
	}
	for _, left := range mountsBelow(h.dir) {
		// Pool disks are the daemon's own and stay mounted while it is away.
		if !strings.Contains(left, "/disks/pool/") {
			h.t.Errorf("left mounted: %s", left)
		}
		_ = exec.Command("umount", "-l", left).Run()
	}
	if err := os.RemoveAll(h.dir); err != nil {
		h.t.Errorf("left behind: %v", err)
	}
}

func mountsBelow(dir string) []string {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
			found = append(found, f[1])
		}
	}
	return found
}

// freePort finds a port below the range that the kernel gives to whoever asks
// for any, so that nobody else gets it before the daemon does.
func freePort() (int, error) {
	for range 100 {
		port := 20000 + rand.IntN(10000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port between 20000 and 30000")
}

// destroyAll purges every sandbox that a daemon has.
func destroyAll(url string) error {
	res, err := http.Get(url + "/v1/sandboxes?limit=1000")
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	defer res.Body.Close()
	var list struct {
		Sandboxes []struct {
			ID string `json:"id"`
		} `json:"sandboxes"`
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("list: %s", res.Status)
	}
	if err := json.NewDecoder(res.Body).Decode(&list); err != nil {
		return fmt.Errorf("list: %w", err)
	}
	for _, box := range list.Sandboxes {
		res, err := http.Post(url+"/v1/sandboxes/"+box.ID+"/purge", "", nil)
		if err != nil {
			return fmt.Errorf("purge %s: %w", box.ID, err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("purge %s: %s", box.ID, res.Status)
		}
	}
	return nil
}
