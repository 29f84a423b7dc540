package core_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// TestFollowersMissNothing has several readers follow a history while it is
// made, each from another place: everyone sees the rest of it, in order, and
// comes to its end.
func TestFollowersMissNothing(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	seen := make([][]int64, 6)
	var readers sync.WaitGroup
	for i := range seen {
		readers.Go(func() {
			for e, err := range w.FollowEvents(w.ctx, "a", int64(i)) {
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
			for j := range 20 {
				name := fmt.Sprintf("f%d-%d", i, j)
				if _, err := w.WriteFile(w.ctx, "a", name, strings.NewReader("x"), sandbox.FileWrite{}); err != nil {
					t.Error(err)
				}
				if j%5 == 0 {
					w.sh("a", "true")
				}
			}
		})
	}
	writers.Wait()
	if err := w.Destroy(w.ctx, "a", false); err != nil {
		t.Fatal(err)
	}
	readers.Wait()
	all, _, err := w.Events(w.ctx, "a", 0, 1000)
	if err != nil || len(all) < 100 {
		t.Fatalf("Events = %d, %v", len(all), err)
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

func TestFollowEvents(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.sh("a", "exit 3")
	follow := func(ctx context.Context, id string, kinds ...string) (got []string, err error) {
		for e, err := range w.FollowEvents(ctx, id, 0, kinds...) {
			if err != nil {
				return got, err
			}
			got = append(got, fmt.Sprintf("%s %d %s", e.Kind, e.Seq, e.Status))
		}
		return got, nil
	}
	ctx, cancel := context.WithTimeout(w.ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := follow(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("following a sandbox that lives on = %v", err)
	}
	for kinds, want := range map[string]error{
		"exec": errs.Invalid, "Exec.x": errs.Invalid, "": errs.Invalid, "*.started": errs.Invalid, "git.clone": nil, "*": nil,
	} {
		if _, _, err := w.Events(w.ctx, "a", 0, 0, kinds); want == nil && err != nil || !errors.Is(err, want) {
			t.Errorf("Events of %q = %v, want %v", kinds, err, want)
		}
	}
	if _, err := follow(w.ctx, "b"); !errors.Is(err, errs.NotFound) {
		t.Errorf("following no sandbox = %v", err)
	}
	if _, err := follow(as(w.ctx, "mallory", "elsewhere"), "a"); !errors.Is(err, errs.NotFound) {
		t.Errorf("following another tenant's sandbox = %v", err)
	}
	if err := w.Destroy(w.ctx, "a", false); err != nil {
		t.Fatal(err)
	}
	want := []string{"sandbox.created 0 done", "exec.started 1 running", "exec.finished 1 done", "sandbox.destroyed 0 done"}
	got, err := follow(w.ctx, "a", "exec.*", "sandbox.created", "sandbox.destroyed")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("after the end: %v (-want +got):\n%s", err, diff)
	}
	// A filter does not keep the end from being seen.
	if got, err := follow(w.ctx, "a", "exec.finished"); err != nil || len(got) != 1 {
		t.Errorf("only ends: %v, %v", got, err)
	}
}

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
		if _, err := w.WriteFile(w.ctx, "a", name, strings.NewReader("x"), sandbox.FileWrite{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.RemoveFile(w.ctx, "a", "one", false); err != nil {
		t.Fatal(err)
	}
	if r := w.sh("a", "echo hello; exit 3"); string(r.Stdout) != "hello\n" || *r.Exec.Exit.Code != 3 {
		t.Errorf("a command meanwhile = %+v", r)
	}
	// What has to be in the history is refused when it cannot be.
	if _, err := w.Create(w.ctx, core.CreateRequest{ID: "b"}); err == nil {
		t.Error("a create that cannot be noted is accepted")
	}
	command(`DROP TRIGGER closed`)
	kinds := func() (all []string) {
		events, _, err := w.Events(w.ctx, "a", 0, 0)
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
		if _, err := w.WriteFile(w.ctx, "a", fmt.Sprint("f", i), strings.NewReader("x"), sandbox.FileWrite{}); err != nil {
			t.Fatal(err)
		}
		w.sh("a", "true")
		w.until("the end is in the history", func() bool {
			events, _, err := w.Events(w.ctx, "a", 0, 0, "exec.finished")
			return err == nil && len(events) == i+1
		})
		mu.Lock()
		now = now.Add(-time.Hour)
		mu.Unlock()
	}
	var names []string
	var after int64
	for {
		events, next, err := w.Events(w.ctx, "a", after, 1, "file.written", "exec.finished")
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
