//go:build root

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store/postgrestest"
)

// TestDatabaseLostAtAnyMomentOfTheStart: whichever statement of a daemon's start the
// database is lost at, the agent does not end, refuses what it cannot do, and takes up
// the runs of the earlier daemon when the database is back. No tool runs twice.
func TestDatabaseLostAtAnyMomentOfTheStart(t *testing.T) {
	postgrestest.New(t) // keeps the server for all moments
	const atOnce = 8    // they wait most of the time
	var over atomic.Bool
	for moment := 1; !over.Load() && !t.Failed(); {
		if moment > 400 {
			t.Fatal("the start has no end")
		}
		t.Run("", func(t *testing.T) {
			for range atOnce {
				at := moment
				t.Run(fmt.Sprint(at), func(t *testing.T) {
					t.Parallel()
					if !loseAt(t, at) {
						over.Store(true)
					}
				})
				// The start itself takes two dozen statements; then the runs go on.
				if moment++; moment > 24 {
					moment += 4
				}
			}
		})
	}
}

// loseAt loses the database at a statement of the second daemon. It reports false when
// there were not so many until all was done.
func loseAt(t *testing.T, statement int) (reached bool) {
	line, url := postgrestest.NewLine(t, postgrestest.New(t))
	w := newWorld(t)
	w.url = url
	var calls atomic.Int64
	w.called = func(_ context.Context, c loop.Call) loop.Result {
		calls.Add(1)
		return loop.Result{Content: "ran " + c.Name}
	}
	s, stop := w.daemon()
	thread := newThread(t, s)
	first := begin(t, s, thread, says("wait"))
	<-w.model.waiting
	n := says("call run")
	n.Multitask = conversation.MultitaskEnqueue
	second := begin(t, s, thread, n)
	stop()

	close(w.model.release)
	var lost <-chan struct{}
	w.opened = func() { lost = line.CutAfter(statement) }
	s, _ = w.daemon()
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-lost
		if _, _, err := s.Runs().Create(acme(t), thread, says("now")); !errors.Is(err, errs.Unready) || errs.Public(err).RetryAfter == 0 {
			t.Errorf("a run without a database = %v, want unready and when to try again", err)
		}
		line.Mend()
	}()
	ended := func() bool {
		runs, err := runsOf(acme(t), s, thread, agent.RunQuery{})
		if err != nil && !errors.Is(err, errs.Unready) {
			t.Error(err)
		}
		for _, run := range runs {
			if !run.Status.Ended() {
				return false
			}
		}
		return len(runs) == 2
	}
	until(t, ended)
	select {
	case <-done:
		reached = true
	default:
		line.Cut() // lets the goroutine end
		<-done
	}
	for i, run := range []conversation.Run{first, second} {
		var got conversation.Run
		until(t, func() (ok bool) {
			var err error
			got, err = s.Runs().Get(acme(t), thread, run.ID)
			return err == nil
		})
		if got.Status != conversation.RunSuccess {
			t.Errorf("run %d has ended as %s: %s", i, got.Status, got.Error)
		}
	}
	if calls.Load() != 1 {
		t.Errorf("the tool ran %d times", calls.Load())
	}
	var third conversation.Run
	until(t, func() bool { // the start may not be over yet
		var err error
		third, _, err = s.Runs().Create(acme(t), thread, says("on"))
		if err != nil && !errors.Is(err, errs.Unready) {
			t.Fatal(err)
		}
		return err == nil
	})
	_, said := wait(t, s, thread, third)
	equal(t, "last", said[len(said)-1], "ai:said on")
	return reached
}
