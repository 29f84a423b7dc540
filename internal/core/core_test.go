package core_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/driver/drivertest"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/seal"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/storage/local"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a host with everything real but the driver's isolation and the
// images. A daemon on it can be restarted.
type world struct {
	*core.Service
	t        *testing.T
	ctx      context.Context
	dir      string
	fake     *drivertest.Fake
	faults   *drivertest.Faulty // of fake: what core drives
	images   *images
	store    *store.Store
	disks    *local.Disks
	journals *journal.Journals
	limits   journal.Limits
	edit     []func(*core.Config)
	stop     func()
}

func newWorld(t *testing.T, edit ...func(*core.Config)) *world {
	t.Helper()
	w := stoppedWorld(t, edit...)
	w.start()
	return w
}

// stoppedWorld is a world whose daemon does not run yet.
func stoppedWorld(t *testing.T, edit ...func(*core.Config)) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	dir := t.TempDir()
	w := &world{
		t: t, ctx: ctx, dir: dir, fake: drivertest.NewFake(t), edit: edit,
		images: &images{dir: filepath.Join(dir, "rootfs"), pins: map[sandbox.UID]string{}},
		limits: journal.Limits{PerExec: 1 << 20, PerSandbox: 8 << 20},
		stop:   func() {},
	}
	w.faults = drivertest.NewFaulty(w.fake)
	w.open()
	t.Cleanup(func() { w.stop() })
	return w
}

// open opens what a daemon opens.
func (w *world) open() {
	w.t.Helper()
	key, err := seal.OpenKey(filepath.Join(w.dir, "seal.key"))
	if err != nil {
		w.t.Fatal(err)
	}
	storetest.Migrate(w.t, filepath.Join(w.dir, "cubby.db"))
	if w.store, err = store.Open(w.ctx, store.Config{Path: filepath.Join(w.dir, "cubby.db"), Seal: key}); err != nil {
		w.t.Fatal(err)
	}
	if w.disks, err = local.New(local.Config{Dir: filepath.Join(w.dir, "disks"), Plain: true, Reserve: 1}); err != nil {
		w.t.Fatal(err)
	}
	if w.journals, err = journal.Open(filepath.Join(w.dir, "journals"), w.limits); err != nil {
		w.t.Fatal(err)
	}
	w.stop = func() { w.close() }
}

func (w *world) close() {
	w.t.Helper()
	if err := errors.Join(w.journals.Close(), w.store.Close()); err != nil {
		w.t.Error(err)
	}
	w.stop = func() {}
}

// start runs a daemon's core.
func (w *world) start() {
	w.t.Helper()
	cfg := core.Config{
		Store: w.store, Driver: w.faults, Disks: w.disks, Images: w.images, Journals: w.journals,
		Log: slog.New(slog.NewTextHandler(testWriter{w.t}, &slog.HandlerOptions{Level: slog.LevelInfo})),
		Sandboxes: lifecycle.Settings{
			MemAvailable: func() (int64, error) { return 64 << 30, nil },
			Host:         admission.Host{CPUs: 4, MemoryBytes: 64 << 30, OpenFiles: 100_000, PIDs: 32768, Files: 8 << 20},
		},
	}
	for _, edit := range w.edit {
		edit(&cfg)
	}
	svc, err := core.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Service = svc
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := svc.Run(ctx); err != nil {
			w.t.Errorf("Run = %v", err)
		}
	})
	w.stop = func() {
		cancel()
		running.Wait()
		w.close()
	}
}

// driverOfNext is the driver as the next daemon opens it, without faults.
func (w *world) driverOfNext() {
	w.fake = w.fake.Restart(w.t)
	w.faults = drivertest.NewFaulty(w.fake)
}

// restart stops the daemon and starts the next one on the same host.
func (w *world) restart() {
	w.t.Helper()
	w.stop()
	w.driverOfNext()
	w.open()
	w.start()
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

// images has one image, base.
type images struct {
	dir string

	mu   sync.Mutex
	err  error
	pins map[sandbox.UID]string
	// unpinErr makes Unpin fail.
	unpinErr  error
	swept     int
	keptInUse bool // what the last Sweep was told of the image
	makings   makings
}

const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func (i *images) List(context.Context) ([]image.Image, error) {
	return []image.Image{{Name: "base", Digest: digest, Dir: i.dir}}, nil
}

func (i *images) Resolve(_ context.Context, name string) (image.Image, error) {
	if name != "base" && name != digest {
		return image.Image{}, errs.E(errs.NotFound, "no such image")
	}
	return image.Image{Name: "base", Digest: digest, Dir: i.dir, Env: []string{"IMAGE=yes", "OVER=image", "HOME=/nowhere", "ALL_PROXY=http://image.example", "https_proxy=http://image.example"}}, nil
}

func (i *images) Pin(_ context.Context, digest string, owner sandbox.UID) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.err == nil {
		i.pins[owner] = digest
	}
	return i.err
}

// fail makes pinning fail from now on.
func (i *images) fail(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.err = err
}

func (i *images) Unpin(_ context.Context, _ string, owner sandbox.UID) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.unpinErr == nil {
		delete(i.pins, owner)
	}
	return i.unpinErr
}

// failUnpin makes unpinning fail from now on.
func (i *images) failUnpin(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.unpinErr = err
}

func (i *images) Pins(context.Context) ([]image.Pin, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	var all []image.Pin
	for owner, digest := range i.pins {
		all = append(all, image.Pin{Digest: digest, Owner: owner})
	}
	return all, nil
}

// Sweep notes whether the image would have been kept.
func (i *images) Sweep(_ context.Context, inUse func(digest string) bool) (int64, error) {
	kept := inUse(digest)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.swept++
	i.keptInUse = kept
	return 0, nil
}

// sweeps tells how often Sweep was called, and whether the last call would have
// kept the image.
func (i *images) sweeps() (n int, kept bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.swept, i.keptInUse
}

func (i *images) pinned() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.pins)
}

func (w *world) create(id string) sandbox.Sandbox {
	w.t.Helper()
	b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: id})
	if err != nil {
		w.t.Fatalf("Create %s: %v", id, err)
	}
	return b
}

// sh runs a shell command to its end.
func (w *world) sh(id, script string) live.Result {
	w.t.Helper()
	r, err := w.Execs().Run(w.ctx, id, sandbox.ExecSpec{Shell: script}, -1, live.OutputCaps{Stdout: -1, Stderr: -1})
	if err != nil {
		w.t.Fatalf("%s: %v", script, err)
	}
	return r
}

// launch begins a shell command that says "ready" and returns when it has.
func (w *world) launch(id, script string) sandbox.Exec {
	w.t.Helper()
	x, err := w.Execs().Start(w.ctx, id, sandbox.ExecSpec{Shell: script})
	if err != nil {
		w.t.Fatalf("%s: %v", script, err)
	}
	for e, err := range w.Execs().Output(w.ctx, id, x.Seq, 0, true) {
		if err != nil || e.Exit != nil {
			w.t.Fatalf("%s: ended before it was ready: %+v, %v", script, e.Exit, err)
		}
		return x
	}
	w.t.Fatalf("%s: no output", script)
	return x
}

func (w *world) wait(id string, seq int64) sandbox.Exec {
	w.t.Helper()
	x, err := w.Execs().Wait(w.ctx, id, seq, 2*time.Minute)
	if err != nil {
		w.t.Fatalf("WaitExec %d: %v", seq, err)
	}
	if !x.Status.Finished() {
		w.t.Fatalf("exec %d is %s and does not end", seq, x.Status)
	}
	return x
}

// until polls for what happens in the background.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for !ok() {
		select {
		case <-w.ctx.Done():
			w.t.Fatalf("it never came to this: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// nothingLeft fails when the host has anything of a sandbox.
func (w *world) nothingLeft() {
	w.t.Helper()
	traces, err := w.fake.List(context.Background())
	if err != nil || len(traces) != 0 {
		w.t.Errorf("the driver has %v, %v, want nothing", traces, err)
	}
	disks, err := w.disks.List()
	tenants, listErr := w.store.Tenants(context.Background(), "", 0)
	if listErr != nil {
		w.t.Error(listErr)
	}
	// What tenants share outlives their sandboxes.
	disks = slices.DeleteFunc(disks, func(uid sandbox.UID) bool {
		return slices.ContainsFunc(tenants, func(t store.Tenant) bool { return t.DiskUID == uid })
	})
	if err != nil || len(disks) != 0 {
		w.t.Errorf("there are disks %v, %v, want none", disks, err)
	}
	if n := w.images.pinned(); n != 0 {
		w.t.Errorf("%d images are pinned, want none", n)
	}
}

func as(ctx context.Context, name, tenant string) context.Context {
	return auth.WithPrincipal(ctx, auth.Principal{Name: name, Tenant: tenant})
}

// newDisk makes a disk and returns its directory.
func (w *world) newDisk(uid sandbox.UID) string {
	w.t.Helper()
	if err := w.disks.Create(w.ctx, uid, storage.Own, 64<<20); err != nil {
		w.t.Fatal(err)
	}
	m, err := w.disks.Attach(w.ctx, storage.Use{User: uid, Own: uid})
	if err != nil {
		w.t.Fatal(err)
	}
	return m.Own.Dir
}
