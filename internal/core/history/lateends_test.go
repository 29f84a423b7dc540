package history_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// begin stores a command that runs.
func (w *world) begin(b sandbox.Sandbox) sandbox.Exec {
	w.t.Helper()
	x := sandbox.Exec{UID: sandbox.NewUID(), Box: b.UID, Spec: sandbox.ExecSpec{Argv: []string{"sleep", "9"}}, Status: sandbox.ExecRunning, CreatedAt: time.Now()}
	var err error
	if x.Seq, err = w.store.CreateExec(w.ctx, x); err != nil {
		w.t.Fatal(err)
	}
	return x
}

// A destroy ends the commands of its sandbox after the sandbox. Those who follow the
// history get these ends too.
func TestStreamEndsBeforeTheEndOfACommand(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	x := w.begin(b)
	w.move(b, sandbox.Destroyed, event.Destroyed{})
	var got []string
	for e, err := range w.following(w.ctx, "a", 0) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, e.Kind); e.Kind != event.SandboxDestroyed {
			continue
		}
		time.AfterFunc(50*time.Millisecond, func() {
			x.Exit, x.Status, x.FinishedAt = &sandbox.Exit{Reason: sandbox.EndDestroyed}, sandbox.ExecError, time.Now()
			if _, err := w.store.FinishStartedExec(w.ctx, x, event.Ended(x)...); err != nil {
				t.Error(err)
			}
		})
	}
	if diff := cmp.Diff([]string{"sandbox.created", "sandbox.started", "sandbox.destroyed", "exec.finished"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A command that never ends keeps nobody for ever, and the stream does not end as if
// all were told.
func TestStreamOfACommandWithoutEnd(t *testing.T) {
	w := newWorld(t)
	w.SetEndsTime(time.Millisecond)
	b := w.create("a")
	w.begin(b)
	w.move(b, sandbox.Destroyed, event.Destroyed{})
	if got, err := w.follow(w.ctx, "a"); !errors.Is(err, errs.Unavailable) || len(got) != 3 {
		t.Errorf("follow = %v, %v", got, err)
	}
}
