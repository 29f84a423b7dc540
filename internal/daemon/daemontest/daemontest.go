// Package daemontest starts a whole daemon inside a test: the real store,
// journals, core and doors over a driver without isolation, on a loopback
// port. Commands in its sandboxes are real processes of this machine, so tests
// run none that do harm. It needs no root and no installed programs.
package daemontest

import (
	"archive/tar"
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/agent/settings"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/daemon"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/drivertest"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/storetest"
)

// Options change what [Start] starts. The zero value is a daemon without
// tokens in a directory of its own.
type Options struct {
	// Dir is the data directory; "" is a fresh one. One that a stopped daemon
	// used is taken up again.
	Dir string
	// Driver is what runs the sandboxes; nil is a new Fake, which the daemon
	// closes when it stops.
	Driver *drivertest.Fake
	// Drive makes what the daemon has for the Driver; nil is the Driver itself.
	Drive func(*drivertest.Fake) driver.Driver
	// Now is the clock that sandboxes' use and age are told by; nil is the
	// real one.
	Now func() time.Time
	// Host is what the machine seems to have; zero fields are measured.
	Host admission.Host
	// Supervisor is the command that does the tasks of coding agents.
	Supervisor []string
	// Config changes the configuration.
	Config func(*config.Config)
	// Environ is where the agent's providers are looked for.
	Environ map[string]string
	// Asking, when it is not nil, is how they are asked.
	Asking *settings.Asking
	// Opened, when it is not nil, is called when everything is open and nothing runs yet.
	Opened func()
}

// Daemon is one that runs.
type Daemon struct {
	URL    string // "http://127.0.0.1:<port>"
	Shows  string // the address of previews; "": none
	Dir    string
	Driver *drivertest.Fake
	Faults *drivertest.Faulty // of the Driver: what the daemon drives

	log  *logBuffer
	stop func() error
}

// Start runs a daemon until the test ends. An image named base exists.
func Start(t testing.TB, o Options) *Daemon {
	t.Helper()
	if o.Dir == "" {
		o.Dir = shortDir(t)
	}
	if o.Driver == nil {
		o.Driver = drivertest.NewFake(t)
	}
	cfg := config.Default()
	cfg.Listen, cfg.PreviewListen, cfg.DataDir = "127.0.0.1:0", "127.0.0.1:0", o.Dir
	cfg.DiskReserve, cfg.MinFreeMemory = 1, 1 // the test machine may be full
	cfg.JournalPerExec, cfg.JournalPerBox, cfg.DiskPool = 32<<20, 64<<20, 0
	cfg.Pool, cfg.ContainerPool = config.Pools{}, 0 // whoever tests it says what is kept ready
	cfg.ShutdownTimeout = 5 * time.Second
	if o.Config != nil {
		o.Config(&cfg)
	}
	log := &logBuffer{}
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", log.String())
		}
	})
	makeBase(t, cfg.Images(), logger)
	if cfg.DatabaseURL == "" && cfg.DataDir == o.Dir {
		storetest.Migrate(t, filepath.Join(cfg.DataDir, "cubby.db"))
	}

	ctx, cancel := context.WithCancel(context.Background())
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Drive == nil {
		o.Drive = func(f *drivertest.Fake) driver.Driver { return f }
	}
	faults := drivertest.NewFaulty(o.Drive(o.Driver))
	options := []daemon.Option{
		daemon.WithDriver(faults), daemon.WithClock(o.Now), daemon.WithLog(logger), daemon.WithPlainDisks(), daemon.WithTaskSupervisor(o.Supervisor...),
		daemon.WithHost(o.Host),
		daemon.WithEnvironment(func(name string) string { return o.Environ[name] }),
		daemon.WithDefaults(sandbox.Spec{Isolation: sandbox.Container}), // the fake has no walls: the cheaper name
	}
	if o.Asking != nil {
		options = append(options, daemon.WithAsking(*o.Asking))
	}
	d, err := daemon.New(ctx, cfg, options...)
	if err != nil {
		cancel()
		t.Fatalf("daemon.New: %v", err)
	}
	if o.Opened != nil {
		o.Opened()
	}
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	stop := sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("the daemon stopped with: %v", err)
		}
	})
	shows := ""
	if addr := d.PreviewAddr(); addr != nil {
		shows = addr.String()
	}
	return &Daemon{Shows: shows, URL: "http://" + d.Addr().String(), Dir: o.Dir, Driver: o.Driver, Faults: faults, log: log, stop: stop}
}

// Log returns what the daemon has logged so far, at every level.
func (d *Daemon) Log() string { return d.log.String() }

// Stop ends the daemon and waits for it. Its sandboxes go on where the driver
// lets them.
func (d *Daemon) Stop() error { return d.stop() }

// shortDir is a temporary directory whose path leaves room for the names of
// UNIX sockets, which end at 108 bytes.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cubby")
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

// makeBase imports the smallest image there is: the fake looks at none of it.
func makeBase(t testing.TB, dir string, log *slog.Logger) {
	t.Helper()
	images, err := image.Open(dir, log)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := images.Resolve(context.Background(), "base"); err == nil {
		return
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	text := []byte("cubby test image\n")
	entries := []*tar.Header{
		{Name: "etc/", Typeflag: tar.TypeDir, Mode: 0o755, Uid: os.Getuid(), Gid: os.Getgid()},
		{Name: "etc/issue", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text)), Uid: os.Getuid(), Gid: os.Getgid()},
	}
	for _, h := range entries {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write(text); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	size := int64(archive.Len())
	if _, err := images.Import(context.Background(), &archive, size, "daemontest", "base", nil); err != nil {
		t.Fatalf("import the test image: %v", err)
	}
}

// logBuffer collects the log of a daemon whose goroutines may outlive the
// moment at which the test reads it.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
