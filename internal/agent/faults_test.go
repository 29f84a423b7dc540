package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/poll"
	"github.com/cubbyhq/cubby/internal/store/storetest"
)

func status(t *testing.T, s *agent.Service, thread string) conversation.ThreadStatus {
	t.Helper()
	view, err := s.Threads().Get(acme(t), thread)
	if err != nil {
		t.Fatal(err)
	}
	return view.Status
}

// faults counts what is logged as an error.
type faults struct {
	slog.Handler

	n atomic.Int64
}

func (f *faults) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		f.n.Add(1)
	}
	return f.Handler.Handle(ctx, r)
}

func (*faults) Enabled(context.Context, slog.Level) bool { return true }

// counted has the errors of a world counted.
func counted(w *world) *faults {
	f := &faults{Handler: slog.DiscardHandler}
	w.log = slog.New(f)
	return f
}

func enqueued(text string) agent.NewRun {
	n := says(text)
	n.Multitask = conversation.MultitaskEnqueue
	return n
}

// TestEndThatCannotBeNoted is noted when the store can be written again, and the next
// run begins then.
func TestEndThatCannotBeNoted(t *testing.T) {
	w := newWorld(t)
	f := counted(w)
	s, _ := w.daemon()
	thread := newThread(t, s)
	first := begin(t, s, thread, says("wait"))
	<-w.model.waiting
	second := begin(t, s, thread, enqueued("two"))
	tried := make(chan struct{})
	mend := storetest.Break(t, w.db(), "UPDATE OF status ON runs", "NEW.status = 'success'")
	close(w.model.release)
	go func() {
		defer close(tried)
		for range s.Runs().Follow(acme(t), thread, first.ID, 0) { //nolint:revive // to its end
		}
	}()
	until(t, func() bool { return f.n.Load() > 0 })
	if got := status(t, s, thread); got != conversation.ThreadBusy {
		t.Errorf("the thread is %s", got)
	}
	mend()
	<-tried
	_, said := wait(t, s, thread, second)
	equal(t, "said", said, []string{"human:wait", "ai:waitingsaid wait", "human:two", "ai:said two"})
	got, err := s.Runs().Get(acme(t), thread, first.ID)
	if err != nil || got.Status != conversation.RunSuccess {
		t.Errorf("the first run is %+v, %v", got, err)
	}
}

func until(t *testing.T, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	if err := poll.Until(ctx, time.Millisecond, 50*time.Millisecond, func() (bool, error) { return done(), nil }); err != nil {
		t.Fatal(err)
	}
}

// TestEndThatIsNeverNoted is left to the next daemon.
func TestEndThatIsNeverNoted(t *testing.T) {
	w := newWorld(t)
	f := counted(w)
	s, stop := w.daemon()
	thread := newThread(t, s)
	mend := storetest.Break(t, w.db(), "UPDATE OF status ON runs", "NEW.status = 'success'")
	run := begin(t, s, thread, says("one"))
	until(t, func() bool { return f.n.Load() > 0 })
	stop()
	mend()
	s, _ = w.daemon()
	run, said := wait(t, s, thread, run)
	equal(t, "status", run.Status, conversation.RunSuccess)
	equal(t, "said", said, []string{"human:one", "ai:said one"})
	equal(t, "thread", status(t, s, thread), conversation.ThreadIdle)
}

// TestStepThatCannotBeStored ends the run with the reason, and the thread goes on.
func TestStepThatCannotBeStored(t *testing.T) {
	w := newWorld(t)
	s, _ := w.daemon()
	thread := newThread(t, s)
	mend := storetest.Break(t, w.db(), "INSERT ON checkpoints", "")
	run, _ := do(t, s, thread, says("one"))
	if run.Status != conversation.RunFailed || !strings.Contains(string(run.Error), "InternalServerError") {
		t.Errorf("run = %+v, %s", run, run.Error)
	}
	equal(t, "thread", status(t, s, thread), conversation.ThreadFailed)
	mend()
	_, said := do(t, s, thread, says("two"))
	equal(t, "said", said, []string{"human:two", "ai:said two"})
}

// TestRunWithoutJournal is refused, and leaves the thread as it was.
func TestRunWithoutJournal(t *testing.T) {
	w := newWorld(t)
	s, _ := w.daemon()
	made, err := s.Threads().Create(acme(t), agent.NewThread{})
	if err != nil {
		t.Fatal(err)
	}
	blocked := filepath.Join(w.dir, "agent", string(made.UID))
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Runs().Create(acme(t), made.ID, says("one")); err == nil {
		t.Fatal("a run without a journal began")
	}
	equal(t, "thread", status(t, s, made.ID), conversation.ThreadIdle)
	if runs, err := runsOf(acme(t), s, made.ID, agent.RunQuery{}); err != nil || len(runs) > 0 {
		t.Errorf("runs = %+v, %v", runs, err)
	}
}

// TestDamagedJournal: a run whose journal cannot be gone on with ends with the reason.
func TestDamagedJournal(t *testing.T) {
	w := newWorld(t)
	s, stop := w.daemon()
	thread := newThread(t, s)
	run := begin(t, s, thread, says("wait"))
	<-w.model.waiting
	stop()
	files, err := filepath.Glob(filepath.Join(w.dir, "agent", "*", "*.log"))
	if err != nil || len(files) != 1 {
		t.Fatalf("journals: %q, %v", files, err)
	}
	if err := os.WriteFile(files[0], []byte("something else altogether"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ = w.daemon()
	until(t, func() bool {
		run, err = s.Runs().Get(acme(t), thread, run.ID)
		return err == nil && run.Status.Ended()
	})
	if run.Status != conversation.RunFailed || !strings.Contains(string(run.Error), "damaged") {
		t.Errorf("run = %+v, %s", run, run.Error)
	}
	close(w.model.release)
	_, said := do(t, s, thread, says("two"))
	equal(t, "last", said[len(said)-1], "ai:said two")
}

// TestTornLine: what an earlier daemon wrote half does not swallow what the next one
// writes.
func TestTornLine(t *testing.T) {
	w := newWorld(t)
	running := make(chan struct{})
	w.called = func(ctx context.Context, c loop.Call) loop.Result {
		c.Output("box", "stdout", strings.Repeat("x", 100<<10))
		close(running)
		<-ctx.Done()
		return loop.Result{}
	}
	s, stop := w.daemon()
	thread := newThread(t, s)
	run := begin(t, s, thread, says("call run"))
	<-running
	stop()
	files, err := filepath.Glob(filepath.Join(w.dir, "agent", "*", "*.log"))
	if err != nil || len(files) != 1 {
		t.Fatalf("journals: %q, %v", files, err)
	}
	info, err := os.Stat(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(files[0], info.Size()-1000); err != nil {
		t.Fatal(err)
	}
	s, _ = w.daemon()
	wait(t, s, thread, run)
	begun := 0
	for _, rec := range follow(t, s, thread, run.ID, 0) {
		if rec.Event.Begun != nil {
			begun++
		}
	}
	equal(t, "daemons", begun, 2)
}

// TestStoppedBeforeTheFirstStep: a run whose daemon stops while its model is looked for
// did not fail: the next one begins it.
func TestStoppedBeforeTheFirstStep(t *testing.T) {
	w := newWorld(t)
	asked, looking := 0, make(chan struct{})
	w.choose = func(ctx context.Context) error {
		if asked++; asked != 2 { // by the request, and by the run
			return nil
		}
		close(looking)
		<-ctx.Done()
		return ctx.Err()
	}
	s, stop := w.daemon()
	thread := newThread(t, s)
	run := begin(t, s, thread, says("one"))
	<-looking
	stop()
	s, _ = w.daemon()
	run, said := wait(t, s, thread, run)
	equal(t, "status", run.Status, conversation.RunSuccess)
	equal(t, "said", said, []string{"human:one", "ai:said one"})
}

// TestCanceledBeforeTheFirstStep is no failure either.
func TestCanceledBeforeTheFirstStep(t *testing.T) {
	w := newWorld(t)
	asked, looking := 0, make(chan struct{})
	w.choose = func(ctx context.Context) error {
		if asked++; asked != 2 {
			return nil
		}
		close(looking)
		<-ctx.Done()
		return ctx.Err()
	}
	s, _ := w.daemon()
	thread := newThread(t, s)
	run := begin(t, s, thread, says("one"))
	<-looking
	run, err := s.Runs().Cancel(acme(t), thread, run.ID, false, true)
	if err != nil || run.Status != conversation.RunInterrupted || status(t, s, thread) != conversation.ThreadIdle {
		t.Errorf("Cancel = %+v, %v, thread %s", run, err, status(t, s, thread))
	}
}

// TestCanceledInTheQueue: the thread stays busy with what goes on.
func TestCanceledInTheQueue(t *testing.T) {
	w := newWorld(t)
	s, _ := w.daemon()
	thread := newThread(t, s)
	first := begin(t, s, thread, says("wait"))
	<-w.model.waiting
	for _, rollback := range []bool{false, true} {
		second := begin(t, s, thread, enqueued("two"))
		if _, err := s.Runs().Cancel(acme(t), thread, second.ID, rollback, true); err != nil {
			t.Fatal(err)
		}
		equal(t, "thread", status(t, s, thread), conversation.ThreadBusy)
	}
	close(w.model.release)
	wait(t, s, thread, first)
	equal(t, "thread", status(t, s, thread), conversation.ThreadIdle)
}

// TestReaderLeavesTheQueue: a run that is to end with its reader does not begin when
// that one left while it waited.
func TestReaderLeavesTheQueue(t *testing.T) {
	w := newWorld(t)
	s, _ := w.daemon()
	thread := newThread(t, s)
	begin(t, s, thread, says("wait"))
	<-w.model.waiting
	second := begin(t, s, thread, enqueued("two"))
	leave, err := s.Runs().Attach(acme(t), thread, second.ID, true)
	if err != nil {
		t.Fatal(err)
	}
	leave()
	close(w.model.release)
	second, _ = wait(t, s, thread, second)
	equal(t, "status", second.Status, conversation.RunInterrupted)
	if n := len(w.model.requests()); n != 1 {
		t.Errorf("the model was asked %d times", n)
	}
}

// TestReadersOfADaemonThatStops are cut off by it: a run that is to end with its reader
// goes on with the next daemon, to which they come back.
func TestReadersOfADaemonThatStops(t *testing.T) {
	w := newWorld(t)
	s, stop := w.daemon()
	thread := newThread(t, s)
	run := begin(t, s, thread, says("wait"))
	<-w.model.waiting
	leave, err := s.Runs().Attach(acme(t), thread, run.ID, true)
	if err != nil {
		t.Fatal(err)
	}
	s.Drain()
	leave()
	stop()
	close(w.model.release)
	s, _ = w.daemon()
	run, said := wait(t, s, thread, run)
	equal(t, "status", run.Status, conversation.RunSuccess)
	equal(t, "said", said, []string{"human:wait", "ai:waitingsaid wait"})
}

// TestRollbackFromAnOlderCheckpoint: the head is again what it was before the run, and
// not where the run began.
func TestRollbackFromAnOlderCheckpoint(t *testing.T) {
	w := newWorld(t)
	s, _ := w.daemon()
	thread := newThread(t, s)
	do(t, s, thread, says("one"))
	history, err := historyOf(acme(t), s, thread, agent.HistoryQuery{})
	if err != nil {
		t.Fatal(err)
	}
	n := says("wait")
	n.Request.Checkpoint = history[2].Checkpoint.ID
	run := begin(t, s, thread, n)
	<-w.model.waiting
	if _, err := s.Runs().Cancel(acme(t), thread, run.ID, true, true); err != nil {
		t.Fatal(err)
	}
	view, err := s.Threads().Get(acme(t), thread)
	if err != nil || view.Head != history[0].Checkpoint.ID || view.Status != conversation.ThreadIdle {
		t.Errorf("thread = %+v, %v", view.Thread, err)
	}
	equal(t, "said", texts(view.Messages), []string{"human:one", "ai:said one"})
	// Nothing is left of its journal, once it is closed.
	until(t, func() bool {
		left, err := filepath.Glob(filepath.Join(w.dir, "agent", "*", "2.log"))
		return err == nil && len(left) == 0
	})
}

// TestWaitGivesWhatTheRunLeft and not what a later one made of it.
func TestWaitGivesWhatTheRunLeft(t *testing.T) {
	s, _ := newWorld(t).daemon()
	thread := newThread(t, s)
	first, _ := do(t, s, thread, says("one"))
	do(t, s, thread, says("two"))
	_, said := wait(t, s, thread, first)
	equal(t, "said", said, []string{"human:one", "ai:said one"})
}

// TestClientsOwnTemporary threads are not cubby's: they outlive the daemon.
func TestClientsOwnTemporary(t *testing.T) {
	w := newWorld(t)
	s, stop := w.daemon()
	marks := map[string]json.RawMessage{"temporary": json.RawMessage("true"), "cubby.temporary_thread": json.RawMessage("true")}
	made, err := s.Threads().Create(acme(t), agent.NewThread{Metadata: marks})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Threads().Update(acme(t), made.ID, marks); err != nil {
		t.Fatal(err)
	}
	// Also a copy of one that goes with its run.
	run, gone, err := s.Runs().Create(acme(t), "", says("hello"))
	if err != nil {
		t.Fatal(err)
	}
	wait(t, s, gone.ID, run)
	copied, err := s.Threads().Copy(acme(t), gone.ID)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	s, _ = w.daemon()
	for _, id := range []string{made.ID, copied.ID} {
		if _, err := runsOf(acme(t), s, id, agent.RunQuery{}); err != nil {
			t.Error(err)
		}
	}
	if err := s.Threads().Delete(acme(t), gone.ID); !errors.Is(err, errs.NotFound) {
		t.Errorf("the thread of a run: %v", err)
	}
}

// TestSweepKeepsWhatNobodyBounds: without a bound of threads only old ones go.
func TestSweepKeepsWhatNobodyBounds(t *testing.T) {
	w := newWorld(t)
	w.bounds.Age = time.Hour
	now := time.Now()
	w.now = func() time.Time { return now }
	s, stop := w.daemon()
	thread := newThread(t, s)
	if err := s.Sweep(acme(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Threads().Get(acme(t), thread); err != nil {
		t.Errorf("a thread of now: %v", err)
	}
	stop()
	now = now.Add(2 * time.Hour)
	s, _ = w.daemon()
	if err := s.Sweep(acme(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Threads().Get(acme(t), thread); !errors.Is(err, errs.NotFound) {
		t.Errorf("an old thread: %v", err)
	}
}

// TestThreadThatCannotBeEnded keeps neither the daemon nor its runs from going on.
func TestThreadThatCannotBeEnded(t *testing.T) {
	w := newWorld(t)
	s, stop := w.daemon()
	run, gone, err := s.Runs().Create(acme(t), "", says("hello"))
	if err != nil {
		t.Fatal(err)
	}
	wait(t, s, gone.ID, run)
	stop()
	w.ending = func() error { return errs.E(errs.Unavailable, "no driver") }
	s, _ = w.daemon()
	thread := newThread(t, s)
	begin(t, s, thread, says("wait"))
	<-w.model.waiting
	second := begin(t, s, thread, enqueued("two"))
	if err := s.Threads().Delete(acme(t), thread); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Delete = %v", err)
	}
	// What waited has ended, and nobody waits for it for ever.
	got, _ := wait(t, s, thread, second)
	equal(t, "status", got.Status, conversation.RunInterrupted)
	equal(t, "thread", status(t, s, thread), conversation.ThreadIdle)
}

// TestRequestsThatMakeNoSense are refused; what clients send out of habit is not.
func TestRequestsThatMakeNoSense(t *testing.T) {
	s, _ := newWorld(t).daemon()
	thread := newThread(t, s)
	for name, change := range map[string]func(*agent.NewRun){
		"less than no step": func(n *agent.NewRun) { n.Request.RecursionLimit = -1 },
		"metadata that no checkpoint can hold": func(n *agent.NewRun) {
			n.Metadata = map[string]json.RawMessage{}
			for i := range 251 {
				n.Metadata[strconv.Itoa(i)] = json.RawMessage(`1`)
			}
		},
		"a strategy that is none":  func(n *agent.NewRun) { n.Multitask = "hurry" },
		"a context that is a list": func(n *agent.NewRun) { n.Request.Context = json.RawMessage(`[{"chat_model_api_key":"k"}]`) },
	} {
		n := says("one")
		change(&n)
		if _, _, err := s.Runs().Create(acme(t), thread, n); !errors.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	n := says("one")
	n.Request.Command = new(conversation.Command)
	if _, said := do(t, s, thread, n); len(said) != 2 {
		t.Errorf("an empty command beside an input: %q", said)
	}
}
