package core_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/storetest"
)

// TestEventsAreWrittenLater takes the table of events away while things
// happen. They are told once it is back, each once and in order.
func TestEventsAreWrittenLater(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	db, err := sql.Open("sqlite", filepath.Join(w.dir, "cubby.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	command := func(text string) {
		t.Helper()
		if _, err := db.ExecContext(w.ctx, text); err != nil {
			t.Fatal(err)
		}
	}
	command(`CREATE TRIGGER closed BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'closed'); END`)
	for _, name := range []string{"one", "two"} {
		if _, err := w.Files().Write(w.ctx, "a", name, strings.NewReader("x"), sandbox.FileWrite{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Files().Remove(w.ctx, "a", "one", false); err != nil {
		t.Fatal(err)
	}
	if r := w.sh("a", "echo hello; exit 3"); string(r.Stdout) != "hello\n" || *r.Exec.Exit.Code != 3 {
		t.Errorf("a command meanwhile = %+v", r)
	}
	// What has to be in the history is refused when it cannot be.
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "b"}); err == nil {
		t.Error("a create that cannot be noted is accepted")
	}
	command(`DROP TRIGGER closed`)
	kinds := func() (all []string) {
		events, _, err := w.Events().List(w.ctx, "a", 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			all = append(all, e.Kind)
		}
		return all
	}
	w.until("the events are written", func() bool {
		all := kinds()
		return slices.Contains(all, "exec.finished") && slices.Contains(all, "file.removed")
	})
	want := []string{"file.written", "file.written", "file.removed"}
	var files, execs []string
	for _, kind := range kinds() {
		switch {
		case strings.HasPrefix(kind, "file."):
			files = append(files, kind)
		case strings.HasPrefix(kind, "exec."):
			execs = append(execs, kind)
		}
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"exec.started", "exec.finished"}, execs); diff != "" {
		t.Errorf("execs (-want +got):\n%s", diff)
	}
	if x, err := w.store.Exec(w.ctx, b.UID, 1); err != nil || x.Status != sandbox.ExecDone {
		t.Errorf("the exec in the store = %+v, %v", x, err)
	}
}

// A command whose end could not be written before its sandbox was destroyed has it in
// the stream of events all the same.
func TestStreamEndsBeforeTheEndOfACommand(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	x := w.launch("a", "echo ready; sleep 1000")
	w.until("its start is written", func() bool {
		now, err := w.store.Exec(w.ctx, b.UID, x.Seq)
		return err == nil && now.Status == sandbox.ExecRunning
	})
	f, err := w.Events().Follower(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Leave()
	mend := storetest.Break(t, filepath.Join(w.dir, "cubby.db"), "UPDATE OF status ON execs", "")
	destroyed := make(chan error, 1)
	go func() { destroyed <- w.Sandboxes().Destroy(w.ctx, "a", false) }()
	var got []string
	for e, err := range f.Follow(w.ctx, "a", 0, "exec.*", "sandbox.destroyed") {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, e.Kind); e.Kind == event.SandboxDestroyed {
			if err := <-destroyed; err != nil {
				t.Error(err)
			}
			time.AfterFunc(50*time.Millisecond, mend)
		}
	}
	if diff := cmp.Diff([]string{"exec.started", "sandbox.destroyed", "exec.finished"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestClockStepsBack has the host's clock set back: cursors go on.
func TestClockStepsBack(t *testing.T) {
	var mu sync.Mutex
	now := time.Now()
	w := newWorld(t, func(c *core.Config) {
		c.Now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return now
		}
	})
	w.create("a")
	for i := range 5 {
		if _, err := w.Files().Write(w.ctx, "a", fmt.Sprint("f", i), strings.NewReader("x"), sandbox.FileWrite{}); err != nil {
			t.Fatal(err)
		}
		w.sh("a", "true")
		w.until("the end is in the history", func() bool {
			events, _, err := w.Events().List(w.ctx, "a", 0, 0, "exec.finished")
			return err == nil && len(events) == i+1
		})
		mu.Lock()
		now = now.Add(-time.Hour)
		mu.Unlock()
	}
	var names []string
	var after int64
	for {
		events, next, err := w.Events().List(w.ctx, "a", after, 1, "file.written", "exec.finished")
		if err != nil {
			t.Fatal(err)
		}
		if len(events) == 0 {
			break
		}
		names = append(names, events[0].Kind)
		after = next
	}
	if want := slices.Repeat([]string{"file.written", "exec.finished"}, 5); !slices.Equal(names, want) {
		t.Errorf("page by page: %q", names)
	}
	for seq := range int64(5) {
		if x := w.wait("a", seq+1); x.FinishedAt.Before(x.StartedAt) || x.StartedAt.Before(x.CreatedAt) {
			t.Errorf("exec %d ran from %v to %v", x.Seq, x.StartedAt, x.FinishedAt)
		}
	}
}
