package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/seal"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// clock is a time that only tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time // guarded by mu
}

func newClock() *clock { return &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	return c.now
}

// testKey is one for all: a database that is opened again can be read.
var testKey = sync.OnceValues(seal.NewKey)

func open(t testing.TB, path string, c *clock) *Store {
	t.Helper()
	return openAt(t, Config{Path: path}, c)
}

func openAt(t testing.TB, where Config, c *clock) *Store {
	t.Helper()
	key, err := testKey()
	if err != nil {
		t.Fatal(err)
	}
	where.Seal, where.Now = key, c.Now
	s, err := Open(t.Context(), where)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func fresh(t testing.TB) (*Store, *clock) {
	t.Helper()
	c := newClock()
	return openAt(t, somewhere(t), c), c
}

// onPostgres are the tests and benchmarks whose parts run on PostgreSQL.
var onPostgres = []string{"TestOnPostgreSQL/", "BenchmarkOnPostgreSQL/"}

// newPostgres makes a database for a test of [onPostgres].
var newPostgres func(testing.TB) (url string)

// somewhere is a place for a new database: a file, or for tests of
// [onPostgres] a PostgreSQL.
func somewhere(t testing.TB) Config {
	t.Helper()
	c := Config{Path: filepath.Join(t.TempDir(), "cubby.db")}
	if slices.ContainsFunc(onPostgres, func(name string) bool { return strings.HasPrefix(t.Name(), name) }) {
		c.URL = newPostgres(t)
	}
	return c
}

func box(id string) sandbox.Sandbox {
	return sandbox.Sandbox{UID: sandbox.NewUID(), ID: sandbox.ID(id), Spec: sandbox.Spec{
		Image: "base", Isolation: sandbox.GVisor, Env: map[string]string{"SECRET": "s3cret"},
		Limits: sandbox.Limits{MemoryBytes: 1 << 30, CPUs: 1.5}, Network: sandbox.Policy{Mode: sandbox.NetworkNone},
	}}
}

// create stores a sandbox and moves it to Running.
func create(t testing.TB, s *Store, b sandbox.Sandbox) sandbox.Sandbox {
	t.Helper()
	if err := s.CreateSandbox(t.Context(), b); err != nil {
		t.Fatalf("CreateSandbox %s: %v", b.ID, err)
	}
	return move(t, s, b.UID, sandbox.Running, Change{})
}

// asked is why a sandbox rests that is to rest.
var asked = sandbox.Why{Cause: sandbox.CauseRequest}

func move(t testing.TB, s *Store, uid sandbox.UID, to sandbox.State, c Change) sandbox.Sandbox {
	t.Helper()
	if !c.Why.Explains(to) {
		c.Why = asked
	}
	b, err := s.Move(t.Context(), uid, to, c)
	if err != nil {
		t.Fatalf("Move to %s: %v", to, err)
	}
	return b
}

func wantKind(t testing.TB, what string, err error, want error) {
	t.Helper()
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		t.Errorf("%s = %v, want %v", what, err, want)
	}
}

func TestFilesAreOnlyForTheDaemon(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s := open(t, filepath.Join(dir, "cubby.db"), newClock())
	create(t, s, box("a"))
	for _, name := range []string{"", "cubby.db", "cubby.db-wal", "cubby.db-shm"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%q has mode %v", name, info.Mode())
		}
	}
}

// TestTidyKeepsTheLogShort writes much more than the write-ahead log is to
// hold, with a round of tidying now and then.
func TestTidyKeepsTheLogShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cubby.db")
	s := open(t, path, newClock())
	b := create(t, s, box("a"))
	for i := range 3000 {
		if err := s.SetHandle(t.Context(), b.UID, []byte(strings.Repeat("h", 3000))); err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 {
			if err := s.engine.Tidy(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	info, err := os.Stat(path + "-wal")
	if err != nil || info.Size() > 4<<20 {
		t.Errorf("the log has %d bytes, %v, want less", info.Size(), err)
	}
}

func TestRunFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flushes, tidied := 0, 0
		s := &Store{engine: engine.Engine{
			Flush: func() error { flushes++; return nil },
			Tidy:  func(context.Context) error { tidied++; return nil },
		}}
		done := make(chan error)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { done <- s.Run(ctx) }()
		time.Sleep(3*syncInterval + syncInterval/2)
		cancel()
		if err := <-done; err != nil || flushes != 3 || tidied != 3 {
			t.Errorf("Run = %v after %d flushes and %d rounds of tidying, want 3", err, flushes, tidied)
		}
	})
}

// TestAProbeWritesNothing: who asks every few seconds whether the store works has no
// disk synced and no log copied.
func TestAProbeWritesNothing(t *testing.T) {
	s, _ := fresh(t)
	wrote := 0
	s.engine.Wrote = func() { wrote++ }
	if err := s.Ping(t.Context()); err != nil || wrote != 0 {
		t.Errorf("Ping = %v, and wrote %d times", err, wrote)
	}
	if create(t, s, box("a")); wrote == 0 {
		t.Error("a create is not told of")
	}
}

func TestClosed(t *testing.T) {
	s, _ := fresh(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close again = %v", err)
	}
	if err := s.engine.Flush(); err != nil {
		t.Errorf("a sync that comes after Close = %v", err)
	}
	_, err := s.Sandbox(t.Context(), "a")
	wantKind(t, "a read after Close", err, errs.Unavailable)
	wantKind(t, "a write after Close", s.CreateSandbox(t.Context(), box("a")), errs.Unavailable)
	wantKind(t, "Ping after Close", s.Ping(t.Context()), errs.Unavailable)
}

func TestCanceledContext(t *testing.T) {
	s, _ := fresh(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantKind(t, "CreateSandbox", s.CreateSandbox(ctx, box("a")), context.Canceled)
	_, err := s.Sandbox(ctx, "a")
	wantKind(t, "Sandbox", err, context.Canceled)
	if _, err := s.Sandbox(t.Context(), "a"); !errors.Is(err, errs.NotFound) {
		t.Errorf("a canceled create left %v", err)
	}
}

// TestSecretsLeaveTheFiles looks for secrets in the raw files.
func TestSecretsLeaveTheFiles(t *testing.T) {
	c := newClock()
	path := filepath.Join(t.TempDir(), "cubby.db")
	s := open(t, path, c)
	b := box("a")
	b.Spec.Env = map[string]string{"TOKEN": "box-secret-value"}
	b = create(t, s, b)
	e := sandbox.Exec{UID: sandbox.NewUID(), Box: b.UID, Spec: sandbox.ExecSpec{Shell: "true", Env: map[string]string{"T": "exec-secret-value"}}}
	seq, err := s.CreateExec(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.StartExec(t.Context(), b.UID, seq, c.Now()); err != nil {
		t.Fatal(err)
	}
	move(t, s, b.UID, sandbox.Destroyed, Change{})
	if err := s.Close(); err != nil { // checkpoints and removes the WAL
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"box-secret-value", "exec-secret-value"} {
		if strings.Contains(string(raw), secret) {
			t.Errorf("%s is still in the file", secret)
		}
	}
}
