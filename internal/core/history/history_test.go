package history_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/budget"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/history"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/seal"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a store, and a service of nothing but histories that runs on it.
type world struct {
	*history.Events
	*history.Recorder
	t     *testing.T
	ctx   context.Context
	path  string // of the database
	store *store.Store
	gate  *gate.Gate
	end   func() // ends the service
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	dir := t.TempDir()
	key, err := seal.OpenKey(filepath.Join(dir, "seal.key"))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, ctx: ctx, path: filepath.Join(dir, "cubby.db"), gate: gate.New()}
	storetest.Migrate(t, w.path)
	if w.store, err = store.Open(ctx, store.Config{Path: w.path, Seal: key}); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(context.Background())
	if err := w.gate.Begin(running); err != nil {
		t.Fatal(err)
	}
	w.gate.Open()
	w.Recorder = history.NewRecorder(w.store, w.gate, slog.New(slog.DiscardHandler), time.Now)
	w.Events = history.NewEvents(w.store, scope.New(w.store, w.gate, time.Now), w.gate, budget.Budget{}, nil)
	w.end = sync.OnceFunc(func() { w.gate.End(stop) })
	t.Cleanup(func() {
		w.end()
		if err := w.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// create stores a sandbox that runs.
func (w *world) create(id sandbox.ID) sandbox.Sandbox {
	w.t.Helper()
	b := sandbox.Sandbox{UID: sandbox.NewUID(), ID: id, ImageDigest: "sha256:abc", Spec: sandbox.Spec{Image: "base", Isolation: sandbox.GVisor}}
	b.DiskUID = b.UID
	if err := w.store.CreateSandbox(w.ctx, b, event.New(b.UID, "", event.Created{ID: id})); err != nil {
		w.t.Fatal(err)
	}
	return w.move(b, sandbox.Running, event.Started{})
}

func (w *world) move(b sandbox.Sandbox, to sandbox.State, why event.Payload) sandbox.Sandbox {
	w.t.Helper()
	b, err := w.store.Move(w.ctx, b.UID, to, store.Change{Events: []sandbox.Event{event.New(b.UID, "", why)}})
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// noteWrite notes that a file was written.
func (w *world) noteWrite(b sandbox.Sandbox, name string) {
	w.Note(w.ctx, event.New(b.UID, "", event.FileWrite{Path: name, Size: 1}))
}

// TestFollowersMissNothing has several readers follow a history while it is
// made, each from another place: everyone sees the rest of it, in order, and
// comes to its end.
func TestFollowersMissNothing(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	seen := make([][]int64, 6)
	var readers sync.WaitGroup
	for i := range seen {
		readers.Go(func() {
			for e, err := range w.following(w.ctx, "a", int64(i)) {
				if err != nil {
					t.Errorf("follower %d: %v", i, err)
				}
				seen[i] = append(seen[i], e.Cursor)
			}
		})
	}
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			for j := range 30 {
				w.noteWrite(b, fmt.Sprintf("f%d-%d", i, j))
			}
		})
	}
	writers.Wait()
	w.move(b, sandbox.Destroyed, event.Destroyed{})
	readers.Wait()
	all, _, err := w.List(w.ctx, "a", 0, 1000)
	if err != nil || len(all) != 4*30+3 {
		t.Fatalf("List = %d, %v", len(all), err)
	}
	for i := range seen {
		var want []int64
		for _, e := range all {
			if e.Cursor > int64(i) {
				want = append(want, e.Cursor)
			}
		}
		if diff := cmp.Diff(want, seen[i]); diff != "" {
			t.Errorf("follower %d (-want +got):\n%s", i, diff)
		}
	}
}

// following follows a history in a place of its own.
func (w *world) following(ctx context.Context, id string, after int64, kinds ...string) iter.Seq2[sandbox.Event, error] {
	return func(yield func(sandbox.Event, error) bool) {
		f, err := w.Follower(ctx)
		if err != nil {
			yield(sandbox.Event{}, err)
			return
		}
		defer f.Leave()
		for e, err := range f.Follow(ctx, id, after, kinds...) {
			if !yield(e.Event, err) {
				return
			}
		}
	}
}

func (w *world) follow(ctx context.Context, id string, kinds ...string) (got []string, err error) {
	for e, err := range w.following(ctx, id, 0, kinds...) {
		if err != nil {
			return got, err
		}
		got = append(got, e.Kind)
	}
	return got, nil
}

func TestFollow(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	w.noteWrite(b, "one")
	ctx, cancel := context.WithTimeout(w.ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := w.follow(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("following a sandbox that lives on = %v", err)
	}
	for kinds, want := range map[string]error{
		"exec": errs.Invalid, "Exec.x": errs.Invalid, "": errs.Invalid, "*.started": errs.Invalid, "git.clone": nil, "*": nil,
	} {
		if _, _, err := w.List(w.ctx, "a", 0, 0, kinds); want == nil && err != nil || !errors.Is(err, want) {
			t.Errorf("List of %q = %v, want %v", kinds, err, want)
		}
	}
	if _, err := w.follow(w.ctx, "b"); !errors.Is(err, errs.NotFound) {
		t.Errorf("following no sandbox = %v", err)
	}
	mallory := auth.WithPrincipal(w.ctx, auth.Principal{Name: "mallory", Tenant: "elsewhere"})
	if _, err := w.follow(mallory, "a"); !errors.Is(err, errs.NotFound) {
		t.Errorf("following another tenant's sandbox = %v", err)
	}
	w.move(b, sandbox.Destroyed, event.Destroyed{})
	want := []string{"sandbox.created", "file.written", "sandbox.destroyed"}
	got, err := w.follow(w.ctx, "a", "file.*", "sandbox.created", "sandbox.destroyed")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("after the end: %v (-want +got):\n%s", err, diff)
	}
	// A filter does not keep the end from being seen.
	if got, err := w.follow(w.ctx, "a", "file.written"); err != nil || len(got) != 1 {
		t.Errorf("only files: %v, %v", got, err)
	}
}

// TestFollowersEndWithTheService: and those of one tenant are bounded.
func TestFollowersEndWithTheService(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	const most = 256
	alice := auth.WithPrincipal(w.ctx, auth.Principal{Name: "alice", Tenant: "acme"})
	b := sandbox.Sandbox{UID: sandbox.NewUID(), ID: "b", Tenant: "acme", Spec: sandbox.Spec{Image: "base", Isolation: sandbox.GVisor}}
	b.DiskUID = b.UID
	if err := w.store.CreateSandbox(w.ctx, b, event.New(b.UID, "", event.Created{ID: "b"})); err != nil {
		t.Fatal(err)
	}
	began := make(chan struct{}, most)
	ends := make(chan error, most)
	for range most {
		go func() {
			var last error
			for _, err := range w.following(alice, "b", 0) {
				if err == nil {
					began <- struct{}{}
				}
				last = err
			}
			ends <- last
		}()
	}
	for range most {
		<-began
	}
	if _, err := w.Follower(alice); !errors.Is(err, errs.OverQuota) {
		t.Errorf("Follower with %d followers = %v", most, err)
	}
	f, err := w.Follower(w.ctx)
	if err != nil {
		t.Fatalf("Follower of no tenant = %v", err)
	}
	f.Leave()
	w.end()
	for range most {
		if err := <-ends; !errors.Is(err, errs.Unavailable) {
			t.Fatalf("at the end of the service = %v", err)
		}
	}
}

// TestEventsAreWrittenLater keeps events from being written. They are once they
// can be, each once and in order, also those that came meanwhile.
func TestEventsAreWrittenLater(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	mend := storetest.Break(t, w.path, "INSERT ON events", "")
	var want []string
	for i := range 20 {
		name := fmt.Sprint("f", i)
		w.noteWrite(b, name)
		want = append(want, name)
		if i == 10 {
			mend()
		}
	}
	w.move(b, sandbox.Destroyed, event.Destroyed{})
	paths := func() (all []string) {
		events, _, err := w.List(w.ctx, "a", 0, 1000, "file.written")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			var asked struct{ Path string }
			if err := json.Unmarshal(e.Payload, &asked); err != nil {
				t.Fatal(err)
			}
			all = append(all, asked.Path)
		}
		return all
	}
	for len(paths()) < len(want) && w.ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if diff := cmp.Diff(want, paths()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTheEndIsTheLastAttempt: what waits for the store is written when the
// service ends, if the store lets it.
func TestTheEndIsTheLastAttempt(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	mend := storetest.Break(t, w.path, "INSERT ON events", "")
	for i := range 3 {
		w.noteWrite(b, fmt.Sprint("f", i))
	}
	mend()
	w.end()
	events, err := w.store.Events(w.ctx, b.UID, 0, 100, "file.written")
	if err != nil || len(events) != 3 {
		t.Errorf("%d events after the end, %v, want 3", len(events), err)
	}
}
