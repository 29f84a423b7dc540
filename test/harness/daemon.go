// Package harness runs the built program, bin/cubby, as a child process of a
// test: the same daemon, and the same checks of what it leaves on the host, for
// the tests of end to end, durability, security and the command line. It needs
// root, and an image directory that has the image base.
//
// It never skips: a missing program or image fails the test.
package harness

import (
	"bytes"
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
)

// Patience bounds a start and a stop: the machine may be slow and busy.
const Patience = 2 * time.Minute

// hung is when a daemon is taken to hang: it is ended with the stacks of all
// its goroutines in its log, and its test fails instead of waiting.
const hung = 15 * time.Minute

// Options describe a daemon. The zero value is one without tokens, on a free
// port of the loopback interface, in a directory of its own.
type Options struct {
	Dir      string   // data directory; "" is a fresh one, removed at the end
	Images   string   // "" is [Images]
	Program  string   // "" is [Program]
	Listen   string   // "" is a free port of 127.0.0.1 at every start
	Database string   // URL of a PostgreSQL; "" is SQLite
	Flags    []string // of every start
	Env      []string // beside the test's own
	Unpacks  bool     // a fresh data directory has none of the programs that cubby carries
}

// Daemon is one daemon and its data directory, across restarts. Its methods
// are for one goroutine at a time, except Log and Signal.
type Daemon struct {
	Program string
	Dir     string
	URL     string // of the last start

	t       testing.TB
	options Options

	mu      sync.Mutex
	process *process     // of the last start, nil when it was waited for; guarded by mu
	log     bytes.Buffer // of the last start; guarded by mu
	before  string       // the log of the start before; guarded by mu
}

// process is one run of the program.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended and err is set
	err   error
	guard *time.Timer
}

// Program is the path of the program under test: CUBBY_TEST_BIN, or what make
// build made.
func Program(t testing.TB) string {
	t.Helper()
	return existing(t, "CUBBY_TEST_BIN", "bin/cubby", "")
}

// Images is the directory with the image base: CUBBY_TEST_IMAGE_DIR, or where
// make images puts it.
func Images(t testing.TB) string {
	t.Helper()
	return existing(t, "CUBBY_TEST_IMAGE_DIR", ".cache/images", "names.json")
}

func existing(t testing.TB, variable, usual, holds string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		path = filepath.Join(repository(t), usual)
	}
	path, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(filepath.Join(path, holds))
	}
	if err != nil {
		t.Fatalf("%v: make build images, or set %s", err, variable)
	}
	return path
}

// repository finds the directory of the module that is tested.
func repository(t testing.TB) string {
	t.Helper()
	dir := findRepository()
	if dir == "" {
		t.Fatal("no Makefile above the test")
	}
	return dir
}

func findRepository() string {
	dir, err := os.Getwd()
	for ; err == nil && dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "Makefile")); err == nil {
			return dir
		}
	}
	return ""
}

// TempDir is a directory for one test whose path leaves room for the names of
// UNIX sockets, which end at 108 bytes.
func TempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "cubby")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("left behind: %v", err)
		}
	})
	return dir
}

// New prepares a daemon and starts none. When the test ends, whatever sandbox
// is left is purged, the daemon stops, and anything that it leaves on the host
// fails the test.
func New(t testing.TB, o Options) *Daemon {
	t.Helper()
	d := &Daemon{Program: Program(t), Dir: o.Dir, t: t, options: o}
	if o.Program != "" {
		d.Program = o.Program
	}
	if d.options.Images == "" {
		d.options.Images = Images(t)
	}
	if d.Dir == "" {
		d.Dir = TempDir(t)
		if !o.Unpacks {
			furnish(t, d.Dir)
		}
	}
	t.Cleanup(d.clean)
	return d
}

// Start is [New] and [Daemon.MustStart].
func Start(t testing.TB, o Options) *Daemon {
	t.Helper()
	d := New(t, o)
	d.MustStart()
	return d
}

// MustStart is [Daemon.Start] for tests that go no further without it.
func (d *Daemon) MustStart(flags ...string) (url string) {
	d.t.Helper()
	if err := d.Start(flags...); err != nil {
		d.t.Fatal(err)
	}
	return d.URL
}

// Start runs the program until it answers. What an earlier one left may not be
// in order by then; see [Daemon.WaitReady].
func (d *Daemon) Start(flags ...string) error {
	for try := 0; ; try++ {
		err := d.Launch(flags...)
		if err == nil {
			err = d.wait("/healthz")
		}
		if err == nil || d.options.Listen != "" || try == 4 || !strings.Contains(err.Error(), "address already in use") {
			return err
		}
	}
}

// WaitReady waits until what an earlier daemon left is in order.
func (d *Daemon) WaitReady() {
	d.t.Helper()
	if err := d.wait("/readyz"); err != nil {
		d.t.Fatal(err)
	}
}

// AnyDisk in the environment has the program run on a disk that is nearly full, as that
// of a machine with caches of builds may be. A test of the reserve has its own flag.
const AnyDisk = "CUBBY_DISK_RESERVE=1"

// Launch runs the program and does not wait for it.
func (d *Daemon) Launch(flags ...string) error {
	listen := d.options.Listen
	if listen == "" {
		var err error
		if listen, err = FreeAddress(); err != nil {
			return err
		}
	}
	d.mu.Lock()
	d.before = d.log.String()
	d.log.Reset()
	d.mu.Unlock()
	args := append([]string{
		"serve", "--listen", listen, "--data-dir", d.Dir, "--image-dir", d.options.Images, "--disk-pool", "1",
		"--journal-per-exec", "32MiB", "--journal-per-sandbox", "64MiB", "--log-level", "debug",
	}, d.ownFlags()...)
	args = append(args, d.options.Flags...)
	cmd := exec.Command(d.Program, append(args, flags...)...)
	cmd.Stdout, cmd.Stderr = logWriter{d}, logWriter{d}
	cmd.Env = append(append(os.Environ(), AnyDisk, "CUBBY_DATABASE_URL="+d.options.Database), d.options.Env...)
	// What a terminal sends to the test is not for the daemon: the test ends it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// A child that outlives the daemon may hold its output.
	cmd.WaitDelay = Patience
	if err := cmd.Start(); err != nil {
		return err
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	p.guard = time.AfterFunc(hung, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) })
	go func() {
		p.err = cmd.Wait()
		if strings.Contains(d.Log(), "WARNING: DATA RACE") { // of one that was built with -race
			d.t.Errorf("the daemon has a data race:\n%s", d.Log())
		}
		close(p.ended)
	}()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.process, d.URL = p, "http://"+listen
	return nil
}

// ownFlags keep nothing ready unless a test says otherwise: what it finds of
// sandboxes shall be its own. Previews have a free port. The image that all tests
// use is looked through once for all daemons; a directory of a test's own, by each.
// Earlier versions of the program do not know them.
func (d *Daemon) ownFlags() []string {
	if d.Program != Program(d.t) {
		return nil
	}
	flags := []string{"--pool", "off", "--container-pool", "0", "--preview-listen", "127.0.0.1:0"}
	if d.options.Images == Images(d.t) {
		flags = append(flags, "--image-looks", "1h")
	}
	return flags
}

// wait polls until the daemon answers 200.
func (d *Daemon) wait(path string) error {
	client := &http.Client{Timeout: Patience}
	var last string
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if !d.Running() {
			return fmt.Errorf("the daemon ended: %s", d.Log())
		}
		res, err := client.Get(d.URL + path)
		if err != nil {
			last = err.Error()
			continue
		}
		var text bytes.Buffer
		_, _ = text.ReadFrom(res.Body) // for people
		_ = res.Body.Close()
		if last = text.String(); res.StatusCode == http.StatusOK {
			return nil
		}
	}
	err := fmt.Errorf("the daemon does not answer %s: %s\n%s", path, last, d.Log())
	return errors.Join(err, d.Kill())
}

// Running reports whether the program runs.
func (d *Daemon) Running() bool {
	p := d.current()
	if p == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// PID is the process ID of the daemon that runs, or 0.
func (d *Daemon) PID() int {
	if p := d.current(); p != nil && d.Running() {
		return p.cmd.Process.Pid
	}
	return 0
}

func (d *Daemon) current() *process {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.process
}

// take is current for who waits for its end.
func (d *Daemon) take() *process {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.process
	d.process = nil
	return p
}

// Signal sends a signal to the daemon; one that has ended gets none.
func (d *Daemon) Signal(sig os.Signal) error {
	if p := d.current(); p != nil {
		return p.cmd.Process.Signal(sig)
	}
	return nil
}

// Stop ends the daemon in good order. Stopping a stopped one is not an error;
// that the daemon ended with an error is one, and fails the test.
func (d *Daemon) Stop() error {
	p := d.take()
	if p == nil {
		return nil
	}
	defer p.guard.Stop()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended, which Wait tells
	select {
	case <-p.ended:
	case <-time.After(Patience):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT)
		<-p.ended
		p.err = fmt.Errorf("it did not stop within %v: %w", Patience, p.err)
	}
	if p.err != nil {
		d.t.Errorf("the daemon stopped with: %v\n%s", p.err, d.Log())
	}
	return p.err
}

// Kill ends the daemon as kill -9 does. Killing one that does not run is not
// an error.
func (d *Daemon) Kill() error {
	p := d.take()
	if p == nil {
		return nil
	}
	p.guard.Stop()
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	return nil
}

// Log is what the daemon has logged since its last start.
func (d *Daemon) Log() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.String()
}

type logWriter struct{ d *Daemon }

func (w logWriter) Write(p []byte) (int, error) {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	return w.d.log.Write(p)
}

// FreeAddress is below the range that the kernel gives to whoever asks for any
// port, so that nobody else gets it before the daemon does.
func FreeAddress() (string, error) {
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000))
		l, err := net.Listen("tcp", address)
		if err == nil {
			return address, l.Close()
		}
	}
	return "", errors.New("no free port between 20000 and 30000")
}
