package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/store/storetest"
)

func TestMultitask(t *testing.T) {
	for _, c := range []struct {
		name   string
		second conversation.Multitask
		first  conversation.RunStatus // "": it is gone
		said   []string
	}{
		{"interrupt", conversation.MultitaskInterrupt, conversation.RunInterrupted, []string{"human:wait", "ai:waiting", "human:two", "ai:said two"}},
		{"rollback", conversation.MultitaskRollback, "", []string{"human:two", "ai:said two"}},
		{"enqueue", conversation.MultitaskEnqueue, conversation.RunSuccess, []string{"human:wait", "ai:waitingsaid wait", "human:two", "ai:said two"}},
		{"nobody follows", "", conversation.RunInterrupted, []string{"human:wait", "ai:waiting", "human:two", "ai:said two"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s, _ := w.daemon()
			thread := newThread(t, s)
			first := begin(t, s, thread, says("wait"))
			<-w.model.waiting
			n := says("two")
			n.Multitask = c.second
			run := begin(t, s, thread, n)
			if c.second == conversation.MultitaskEnqueue {
				close(w.model.release)
			}
			_, said := wait(t, s, thread, run)
			equal(t, "said", said, c.said)
			got, err := s.Runs().Get(acme(t), thread, first.ID)
			if c.first == "" && !errors.Is(err, errs.NotFound) || c.first != "" && got.Status != c.first {
				t.Errorf("the first run = %+v, %v", got, err)
			}
		})
	}
	t.Run("reject", func(t *testing.T) {
		w := newWorld(t)
		s, _ := w.daemon()
		thread := newThread(t, s)
		first := begin(t, s, thread, says("wait"))
		<-w.model.waiting
		leave, err := s.Runs().Attach(acme(t), thread, first.ID, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []conversation.Multitask{"", conversation.MultitaskReject} {
			n := says("two")
			n.Multitask = m
			if _, _, err := s.Runs().Create(acme(t), thread, n); !errors.Is(err, errs.Conflict) {
				t.Errorf("a second run with %q = %v", m, err)
			}
		}
		if _, err := s.Threads().Change(acme(t), thread, agent.StateChange{Values: json.RawMessage(`{}`)}); !errors.Is(err, errs.Conflict) {
			t.Errorf("Change of a busy thread = %v", err)
		}
		leave()
		close(w.model.release)
		wait(t, s, thread, first)
	})
}

func TestCancel(t *testing.T) {
	w := newWorld(t)
	s, _ := w.daemon()
	thread := newThread(t, s)
	run := begin(t, s, thread, says("wait"))
	<-w.model.waiting
	got, err := s.Runs().Cancel(acme(t), thread, run.ID, false, true)
	if err != nil || got.Status != conversation.RunInterrupted {
		t.Errorf("Cancel = %+v, %v", got, err)
	}
	if got, err = s.Runs().Cancel(acme(t), thread, run.ID, false, true); err != nil || got.Status != conversation.RunInterrupted {
		t.Errorf("Cancel again = %+v, %v", got, err)
	}
	if err := s.Runs().Delete(acme(t), thread, run.ID); err != nil {
		t.Errorf("Delete = %v", err)
	}
	// One whose reader leaves.
	run = begin(t, s, thread, says("wait"))
	<-w.model.waiting
	leave, err := s.Runs().Attach(acme(t), thread, run.ID, true)
	if err != nil {
		t.Fatal(err)
	}
	leave()
	leave()
	if got, _ := wait(t, s, thread, run); got.Status != conversation.RunInterrupted {
		t.Errorf("the run of a reader who left = %+v", got)
	}
}

// TestInterruptWithoutAFreePlace: a run takes the place of the one that it ends, and
// one that would wait needs a place of its own.
func TestInterruptWithoutAFreePlace(t *testing.T) {
	w := newWorld(t)
	w.bounds.RunsOfTenant = 1
	s, _ := w.daemon()
	thread := newThread(t, s)
	begin(t, s, thread, says("wait"))
	<-w.model.waiting
	n := says("two")
	n.Multitask = conversation.MultitaskEnqueue
	if _, _, err := s.Runs().Create(acme(t), thread, n); !errors.Is(err, errs.OverQuota) {
		t.Errorf("a run that waits = %v", err)
	}
	n.Multitask = conversation.MultitaskInterrupt
	_, said := do(t, s, thread, n)
	equal(t, "said", said, []string{"human:wait", "ai:waiting", "human:two", "ai:said two"})
}

// TestAnsweredRollbackOfARunThatCannotBeTakenBack: its end is noted, and the next daemon
// takes it back.
func TestAnsweredRollbackOfARunThatCannotBeTakenBack(t *testing.T) {
	w := newWorld(t)
	f := counted(w)
	s, stop := w.daemon()
	thread := newThread(t, s)
	do(t, s, thread, says("one"))
	run := begin(t, s, thread, says("wait"))
	<-w.model.waiting
	mend := storetest.Break(t, w.db(), "DELETE ON runs", "")
	if _, err := s.Runs().Cancel(acme(t), thread, run.ID, true, false); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return f.n.Load() > 0 }) // it has ended, and is there
	stop()
	mend()
	next, _ := w.daemon()
	until(t, func() bool {
		_, err := next.Runs().Get(acme(t), thread, run.ID)
		return errors.Is(err, errs.NotFound)
	})
	_, said := do(t, next, thread, enqueued("two"))
	equal(t, "said", said, []string{"human:one", "ai:said one", "human:two", "ai:said two"})
}

// TestRollbackOfARunWhoseEndIsNoted is answered when it is done: no next daemon would
// look at the run.
func TestRollbackOfARunWhoseEndIsNoted(t *testing.T) {
	w := newWorld(t)
	f := counted(w)
	s, _ := w.daemon()
	thread := newThread(t, s)
	run := begin(t, s, thread, says("wait"))
	<-w.model.waiting
	mend := storetest.Break(t, w.db(), "DELETE ON runs", "")
	n := says("two")
	n.Multitask = conversation.MultitaskRollback
	gone, leave := context.WithCancel(acme(t))
	refused := make(chan error)
	go func() {
		_, _, err := s.Runs().Create(gone, thread, n)
		refused <- err
	}()
	until(t, func() bool { return f.n.Load() > 0 }) // it has ended, and is there
	leave()
	if err := <-refused; !errors.Is(err, context.Canceled) {
		t.Errorf("Create = %v", err)
	}
	short, cancel := context.WithTimeout(acme(t), 100*time.Millisecond)
	defer cancel()
	if got, err := s.Runs().Cancel(short, thread, run.ID, true, false); err == nil {
		t.Errorf("Cancel = %+v", got)
	}
	mend()
	if _, err := s.Runs().Cancel(acme(t), thread, run.ID, true, false); err != nil && !errors.Is(err, errs.NotFound) {
		t.Errorf("Cancel = %v", err)
	}
	if got, err := s.Runs().Get(acme(t), thread, run.ID); !errors.Is(err, errs.NotFound) {
		t.Errorf("the run is %+v, %v", got, err)
	}
}

// A run that waits for its turn left its input, of megabytes where that has images, in the
// database: dozens of them were more than the daemon may take.
func TestALongInputWaitsInTheDatabase(t *testing.T) {
	w := newWorld(t)
	s, _ := w.daemon()
	thread := newThread(t, s)
	first := begin(t, s, thread, says("wait"))
	<-w.model.waiting
	long := strings.Repeat("x", store.LongInput)
	n := says(long)
	n.Multitask = conversation.MultitaskEnqueue
	run := begin(t, s, thread, n)
	if size := len(run.Request.Input); size > 0 {
		t.Errorf("a run that waits holds %d bytes of its input", size)
	}
	close(w.model.release)
	wait(t, s, thread, first)
	if _, said := wait(t, s, thread, run); len(said) == 0 || said[len(said)-1] != "ai:said "+long {
		t.Errorf("the model was asked less than the input: %.100q", said)
	}
}

// TestARunKeepsThePlacesOfItsThread as long as it goes on, also while the model thinks.
func TestARunKeepsThePlacesOfItsThread(t *testing.T) {
	w := newWorld(t)
	s, _ := w.daemon()
	thread := newThread(t, s)
	engaged := func() []string {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.Clone(w.engaged)
	}
	run := begin(t, s, thread, says("wait"))
	<-w.model.waiting
	equal(t, "while it goes on", engaged(), []string{thread})
	close(w.model.release)
	wait(t, s, thread, run)
	until(t, func() bool { return len(engaged()) == 0 })
}
