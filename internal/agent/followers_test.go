package agent_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/conversation"
)

// killed is a world as the daemon of this one leaves it when it is killed now.
func (w *world) killed() *world {
	w.t.Helper()
	next := newWorld(w.t)
	next.dir = w.t.TempDir()
	// What is shared between processes in memory is gone with them.
	if err := errors.Join(os.CopyFS(next.dir, os.DirFS(w.dir)), os.RemoveAll(next.dir+"/cubby.db-shm")); err != nil {
		w.t.Fatal(err)
	}
	return next
}

// TestARunThatEndsWithItsClientEndsAfterTheDaemonWasKilled, if the client does not come
// back. Other runs go on.
func TestARunThatEndsWithItsClientEndsAfterTheDaemonWasKilled(t *testing.T) {
	for name, tt := range map[string]struct {
		asked, joined bool // with the request, and by somebody who follows the run later
		want          conversation.RunStatus
	}{
		"asked for so":    {asked: true, want: conversation.RunInterrupted},
		"joined so":       {joined: true, want: conversation.RunInterrupted},
		"asked otherwise": {want: conversation.RunSuccess},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s, _ := w.daemon()
			thread := newThread(t, s)
			n := says("wait")
			n.Request.CancelOnLeave = tt.asked
			run := begin(t, s, thread, n)
			<-w.model.waiting
			if _, err := s.Runs().Attach(acme(t), thread, run.ID, tt.joined); err != nil {
				t.Fatal(err)
			}
			n = says("wait")
			n.Request.CancelOnLeave, n.Multitask = tt.asked || tt.joined, conversation.MultitaskEnqueue
			queued := begin(t, s, thread, n)

			next := w.killed()
			next.returns = time.Nanosecond
			s, _ = next.daemon()
			if tt.want == conversation.RunSuccess {
				close(next.model.release)
			}
			for what, run := range map[string]conversation.Run{"the run": run, "the one behind it": queued} {
				ctx, cancel := context.WithTimeout(acme(t), longest)
				defer cancel()
				state, got, err := s.Runs().Wait(ctx, thread, run.ID)
				if err != nil || got.Status != tt.want {
					t.Errorf("%s is %s, %v, want %s", what, got.Status, err, tt.want)
				}
				state.Release()
			}
		})
	}
}

// TestAClientThatComesBackToTheNextDaemonHasItsRun: it is not ended meanwhile, and a
// look in between ends nothing.
func TestAClientThatComesBackToTheNextDaemonHasItsRun(t *testing.T) {
	w := newWorld(t)
	s, _ := w.daemon()
	thread := newThread(t, s)
	n := says("wait")
	n.Request.CancelOnLeave = true
	run := begin(t, s, thread, n)
	<-w.model.waiting
	next := w.killed()
	next.returns = time.Hour
	s, _ = next.daemon()
	<-next.model.waiting
	leave, err := s.Runs().Attach(acme(t), thread, run.ID, true)
	if err != nil {
		t.Fatal(err)
	}
	leave()
	if _, err := s.Runs().Attach(acme(t), thread, run.ID, true); err != nil {
		t.Fatal(err)
	}
	close(next.model.release)
	if got, _ := wait(t, s, thread, run); got.Status != conversation.RunSuccess {
		t.Errorf("the run is %+v, want success", got)
	}
}
