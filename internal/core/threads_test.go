package core_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/transfer"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/hostfiles"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// threadCaps are the defaults of the daemon.
func threadCaps(c *core.Config) { c.Sandboxes.Caps = admission.Caps{PerThread: 3, InThreads: 5} }

func TestBoundsOfThreads(t *testing.T) {
	w := newWorld(t, threadCaps)
	try := func(id, thread string) error {
		_, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: id, Spec: sandbox.Spec{Thread: thread}})
		return err
	}
	const (
		inThread = "thread limit reached: 3 running sandboxes (max-per-thread)"
		inAll    = "tenant limit reached: 5 running sandboxes in threads (max-thread-sandboxes)"
	)
	for i := range 3 {
		w.member(fmt.Sprint("t", i), "t")
	}
	wantError(t, "the fourth of a thread", try("t3", "t"), errs.OverQuota, inThread)
	w.member("u0", "u")
	w.member("v0", "v")
	wantError(t, "the sixth", try("u1", "u"), errs.OverQuota, inAll)
	// Those in no thread neither count nor are bounded.
	for i := range 3 {
		w.member(fmt.Sprint("free", i), "")
	}
	wantError(t, "the sixth again", try("x0", "x"), errs.OverQuota, inAll)
	if _, err := w.Sandboxes().Create(as(w.ctx, "other", "other"), lifecycle.CreateRequest{ID: "other", Spec: sandbox.Spec{Thread: "t"}}); err != nil {
		t.Errorf("another tenant's thread of that name: %v", err)
	}

	// What is dead or stopped takes no place.
	b, err := w.Sandboxes().Get(w.ctx, "t0")
	if err != nil {
		t.Fatal(err)
	}
	w.fake.Kill(b.UID, driver.Death{Cause: driver.DeathSignal, Signal: "SIGKILL"})
	w.until("the dead one is stopped", func() bool {
		b, err = w.Sandboxes().Get(w.ctx, "t0")
		return err == nil && b.State == sandbox.Stopped
	})
	w.member("t3", "t")
	if _, err := w.Sandboxes().Stop(w.ctx, "v0", 0); err != nil {
		t.Fatal(err)
	}
	w.member("u1", "u")
	_, err = w.Sandboxes().Start(w.ctx, "v0")
	wantError(t, "a start beyond the bound", err, errs.OverQuota, inAll)
}

func TestFiftyCreatesInAThread(t *testing.T) {
	for _, one := range []bool{true, false} {
		t.Run(fmt.Sprintf("one thread %v", one), func(t *testing.T) {
			w := newWorld(t, threadCaps, func(c *core.Config) { c.Sandboxes.Threads.MaxActive = 10 })
			var made, refused int
			var mu sync.Mutex
			var g sync.WaitGroup
			for i := range 50 {
				g.Go(func() {
					thread := "t"
					if !one {
						thread = fmt.Sprint("t", i%5)
					}
					_, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: fmt.Sprint("box", i), Spec: sandbox.Spec{Thread: thread}})
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						made++
					case errors.Is(err, errs.OverQuota) && errors.As(err, new(*sandbox.ThreadFull)):
						refused++
					default:
						t.Errorf("Create = %v", err)
					}
				})
			}
			g.Wait()
			want := 5
			if one {
				want = 3
			}
			if made != want || refused != 50-want {
				t.Errorf("%d were made and %d refused, want %d and %d", made, refused, want, 50-want)
			}
		})
	}
}

func TestDefaultsOfThreads(t *testing.T) {
	idle, life := 30*time.Minute, 2*time.Hour
	c := &clock{now: time.Now()}
	w := newWorld(t, func(cfg *core.Config) {
		cfg.Now = c.Now
		cfg.Sandboxes.Threads.IdleTimeout, cfg.Sandboxes.Threads.MaxLifetime = &idle, &life
	})
	in := w.member("in", "t")
	if s := in.Spec; s.IdlePolicy != sandbox.IdleDestroy || s.IdleTimeout != idle || s.MaxLifetime != life {
		t.Errorf("in a thread it is %s after %s, at most %s", s.IdlePolicy, s.IdleTimeout, s.MaxLifetime)
	}
	if s := w.member("free", "").Spec; s.IdlePolicy != sandbox.IdleSleep || s.MaxLifetime != 0 {
		t.Errorf("in none it is %s, at most %s", s.IdlePolicy, s.MaxLifetime)
	}
	zero := time.Duration(0)
	b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "own", IdleTimeout: &zero, MaxLifetime: &zero, Spec: sandbox.Spec{Thread: "t", IdlePolicy: sandbox.IdleStop}})
	if err != nil || b.Spec.IdlePolicy != sandbox.IdleStop || b.Spec.IdleTimeout != 0 || b.Spec.MaxLifetime != 0 {
		t.Errorf("with wishes it is %+v, %v", b.Spec, err)
	}
	c.add(31 * time.Minute)
	if b := w.gone(in); b.Reason != "idle" {
		t.Errorf("it was destroyed because %q", b.Reason)
	}
}

// An eleventh thread takes the place of the one that was unused longest, and
// none that is in use.
func TestActiveThreads(t *testing.T) {
	c := &clock{now: time.Now()}
	uploads, err := hostfiles.OpenUploads(t.TempDir(), hostfiles.UploadLimits{Thread: 1 << 20}, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(cfg *core.Config) {
		cfg.Now, cfg.Sandboxes.Threads.MaxActive, cfg.Uploads = c.Now, 3, uploads
		cfg.Sandboxes.Caps.InThreads = 6
	})
	names := func() (names []string) {
		t.Helper()
		threads, err := w.Threads().List(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, th := range threads {
			names = append(names, th.Name)
		}
		return names
	}
	kept, err := w.Threads().Upload(w.ctx, "b", "f", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		if id == "d" {
			w.launch("a0", "echo ready; exec sleep 1000") // it was made first, and is in use
		}
		c.add(time.Minute)
		w.member(id+"0", id)
		if id == "b" {
			w.member("b1", "b")
			if _, err := w.Sandboxes().Stop(w.ctx, "b1", 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := names(); !slices.Equal(got, []string{"a", "c", "d"}) {
		t.Fatalf("threads are %q, want a, c and d", got)
	}
	if _, err := w.Sandboxes().Get(w.ctx, "b1"); !errors.Is(err, errs.NotFound) {
		t.Errorf("a stopped sandbox of the evicted thread: %v, want not found", err)
	}
	if _, err := os.Stat(kept.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the uploads of the evicted thread: %v", err)
	}
	// A further sandbox of a thread that is there needs no place.
	w.member("c1", "c")
	if got := names(); !slices.Equal(got, []string{"a", "c", "d"}) {
		t.Errorf("threads are %q, want a, c and d", got)
	}

	w.launch("c1", "echo ready; exec sleep 1000")
	lease := time.Hour
	if _, err := w.Sandboxes().Keepalive(w.ctx, "d0", lifecycle.Keepalive{For: &lease}); err != nil {
		t.Fatal(err)
	}
	_, err = w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "e0", Spec: sandbox.Spec{Thread: "e"}})
	wantError(t, "a thread beyond those that are in use", err, errs.OverQuota, "all 3 active threads are in use")
	if got := names(); !slices.Equal(got, []string{"a", "c", "d"}) {
		t.Errorf("threads are %q, want a, c and d", got)
	}
	if _, err := w.Sandboxes().Create(as(w.ctx, "o", "o"), lifecycle.CreateRequest{ID: "o", Spec: sandbox.Spec{Thread: "e"}}); err != nil {
		t.Errorf("another tenant's thread: %v", err)
	}
	// A create that the bounds refuse anyway evicts nobody.
	if _, err := w.Sandboxes().Keepalive(w.ctx, "d0", lifecycle.Keepalive{For: new(time.Duration)}); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		w.member(fmt.Sprint("a", i+1), "a")
	}
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "e0", Spec: sandbox.Spec{Thread: "e"}}); !errors.Is(err, errs.OverQuota) {
		t.Errorf("Create = %v, want over quota", err)
	}
	if got := names(); !slices.Equal(got, []string{"a", "c", "d"}) {
		t.Errorf("threads are %q, want a, c and d", got)
	}
}

// However many threads begin at once, no more are active than may be.
func TestActiveThreadsAtOnce(t *testing.T) {
	w := newWorld(t, func(cfg *core.Config) { cfg.Sandboxes.Threads.MaxActive = 4 })
	var g sync.WaitGroup
	for i := range 30 {
		g.Go(func() {
			_, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: fmt.Sprint("box", i), Spec: sandbox.Spec{Thread: fmt.Sprint("t", i)}})
			if err != nil && !errors.Is(err, errs.OverQuota) {
				t.Errorf("Create = %v", err)
			}
			if threads, err := w.Threads().List(w.ctx); err != nil || len(threads) > 4 {
				t.Errorf("%d threads are active, %v", len(threads), err)
			}
		})
	}
	g.Wait()
	if threads, err := w.Threads().List(w.ctx); err != nil || len(threads) != 4 {
		t.Errorf("%d threads are active, %v, want 4", len(threads), err)
	}
}

func TestDestroyThread(t *testing.T) {
	dir := t.TempDir()
	w := newWorld(t, func(c *core.Config) {
		var err error
		if c.Uploads, err = hostfiles.OpenUploads(dir, hostfiles.UploadLimits{Thread: 1 << 20}, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	})
	for id, thread := range map[string]string{"a": "t", "b": "t", "c": "u", "d": ""} {
		w.member(id, thread)
	}
	stranger := as(w.ctx, "s", "s")
	if _, err := w.Sandboxes().Create(stranger, lifecycle.CreateRequest{ID: "e", Spec: sandbox.Spec{Thread: "t"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Sandboxes().Stop(w.ctx, "b", 0); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, thread := range []string{"t", "u"} {
		u, err := w.Threads().Upload(w.ctx, thread, "sub/f.txt", strings.NewReader("uploaded"))
		if err != nil || u.Name != "sub/f.txt" || u.Size != 8 {
			t.Fatalf("Upload = %+v, %v", u, err)
		}
		paths = append(paths, u.Path)
	}
	// A thread's uploads are its sandboxes' to import.
	got := w.importOne("a", transfer.ImportEntry{Source: paths[0]})
	if got.Err != nil || w.read("a", "f.txt", 0, -1) != "uploaded" {
		t.Errorf("import of an upload = %+v", got)
	}
	for _, id := range []string{"c", "d"} {
		if got := w.importOne(id, transfer.ImportEntry{Source: paths[0]}); !errors.Is(got.Err, errs.Forbidden) {
			t.Errorf("import of another thread's upload = %+v, want forbidden", got)
		}
	}
	if live, err := w.Threads().Sandboxes(w.ctx, "t"); err != nil || len(live) != 2 {
		t.Errorf("ThreadSandboxes = %d, %v, want 2", len(live), err)
	}

	n, err := w.Threads().Destroy(w.ctx, "t")
	if err != nil || n != 2 {
		t.Errorf("DestroyThread = %d, %v, want 2", n, err)
	}
	for id, want := range map[string]bool{"a": false, "b": false, "c": true, "d": true} {
		if _, err := w.Sandboxes().Get(w.ctx, id); errors.Is(err, errs.NotFound) == want {
			t.Errorf("%s is there: %v, want %v", id, err, want)
		}
	}
	if _, err := w.Sandboxes().Get(stranger, "e"); err != nil {
		t.Errorf("another tenant's sandbox: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(filepath.Dir(filepath.Dir(paths[0])))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what the thread uploaded: %v", err)
	}
	if _, err := os.Stat(paths[1]); err != nil {
		t.Errorf("what the other thread uploaded: %v", err)
	}
	if n, err := w.Threads().Destroy(w.ctx, "t"); n != 0 || err != nil {
		t.Errorf("DestroyThread again = %d, %v", n, err)
	}
	for _, name := range []string{"", "a\nb", strings.Repeat("x", 200)} {
		if _, err := w.Threads().Destroy(w.ctx, name); !errors.Is(err, errs.Invalid) {
			t.Errorf("DestroyThread %q = %v, want invalid", name, err)
		}
		if _, err := w.Threads().Upload(w.ctx, name, "f", strings.NewReader("")); !errors.Is(err, errs.Invalid) {
			t.Errorf("Upload to %q = %v, want invalid", name, err)
		}
	}
}

// The end of a thread that failed, or was cut off, is carried out by the next.
func TestDestroyThreadAgain(t *testing.T) {
	w := newWorld(t)
	w.member("a", "t")
	w.faults.SetFail("Destroy", errs.E(errs.Internal, "broken"))
	if err := w.Threads().End(w.ctx, "t"); err != nil {
		t.Fatal(err)
	}
	w.until("the first one came to the sandbox", func() bool {
		_, err := w.Sandboxes().Get(w.ctx, "a")
		return errors.Is(err, errs.NotFound)
	})
	w.faults.SetFail("Destroy", nil)
	if err := w.Threads().End(w.ctx, "t"); err != nil {
		t.Fatal(err)
	}
	w.until("the thread has nothing", func() bool {
		threads, err := w.Threads().List(w.ctx)
		return err == nil && len(threads) == 0
	})
}
