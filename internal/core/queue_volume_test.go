//go:build !race

package core_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// A session cannot take the memory or the places of others, however much is
// put into it.
func TestTenThousandQueuedCommands(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("a")
	hold, _ := gate(t)
	first := w.queue("a", sandbox.ExecSpec{Shell: hold})
	w.until("it runs", func() bool {
		x, err := w.Execs().Get(w.ctx, "a", first.Seq)
		return err == nil && x.Status == sandbox.ExecRunning
	})
	// Several at a time, for the store writes them together.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var adding sync.WaitGroup
	for range 16 {
		adding.Go(func() {
			for range 10_000 / 16 {
				if _, err := w.Execs().Start(ctx, "a", sandbox.ExecSpec{Shell: "echo x >> log", Session: "main"}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	adding.Wait()
	_, err := w.Execs().Start(ctx, "a", sandbox.ExecSpec{Shell: "true", Session: "other"})
	if errs.KindOf(err) != errs.OverQuota {
		t.Errorf("one more = %v, want over_quota", err)
	}
	if r := w.sh("a", "cat log; echo plain"); !strings.HasSuffix(string(r.Stdout), "plain\n") || strings.Contains(string(r.Stdout), "x") {
		t.Errorf("a plain command wrote %.100q", r.Stdout)
	}
	open, err := os.ReadDir(filepath.Join(w.dir, "journals"))
	if err != nil {
		t.Fatal(err)
	}
	for _, box := range open {
		logs, err := os.ReadDir(filepath.Join(w.dir, "journals", box.Name()))
		if err != nil || len(logs) > 10 {
			t.Errorf("%d journals, %v", len(logs), err)
		}
	}
	if _, err := w.Sandboxes().Stop(ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	list, err := w.Execs().List(ctx, "a", live.ExecQuery{Limit: 1000, AfterSeq: 9_500})
	left := slices.DeleteFunc(list, func(x sandbox.Exec) bool {
		return x.Spec.Session == "" || x.Exit != nil && x.Exit.Reason == sandbox.EndStopped
	})
	if err != nil || len(list) < 400 || len(left) > 0 {
		t.Errorf("after the stop there are %d, of which %d did not end with it, %v", len(list), len(left), err)
	}
}

// Long commands that wait could fill the host's disk up to its reserve.
func TestTextThatWaitsIsBounded(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	wait, open := gate(t)
	w.queue("a", sandbox.ExecSpec{Shell: wait})
	long := sandbox.ExecSpec{Session: "main", Argv: []string{"true"}}
	for range 8 {
		long.Argv = append(long.Argv, strings.Repeat("x", 64<<10))
	}
	n := 0
	for ; n < 200; n++ {
		if _, err := w.Execs().Start(w.ctx, "a", long); err != nil {
			if info := errs.Public(err); info.Kind != errs.OverQuota || info.Hint == "" {
				t.Errorf("one more = %v, want over quota with a hint", err)
			}
			break
		}
	}
	if n < 120 || n > 128 {
		t.Errorf("%d commands of 512 KiB wait, want 64 MiB of them", n)
	}
	w.queue("a", sandbox.ExecSpec{Shell: "true"}) // what is short still may
	for seq := int64(2); seq < 5; seq++ {
		if _, err := w.Execs().Cancel(w.ctx, "a", seq); err != nil {
			t.Error(err)
		}
		w.wait("a", seq)
	}
	if _, err := w.Execs().Start(w.ctx, "a", long); err != nil {
		t.Errorf("when some have ended = %v", err)
	}
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Error(err)
	}
	open()
}
