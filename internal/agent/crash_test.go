package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
)

// image is what a daemon that was killed at some moment leaves.
type image struct {
	dir    string
	called int // tools by then
}

// camera takes an image before each event and each checkpoint, and within the
// transactions that change a run: at each of these the clock is asked.
type camera struct {
	w     *world
	calls atomic.Int64

	mu     sync.Mutex
	on     bool
	images []image
}

func (c *camera) take() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.on {
		return
	}
	dir := fmt.Sprintf("%s-%d", c.w.dir, len(c.images))
	err := os.CopyFS(dir, os.DirFS(c.w.dir))
	for range 100 { // a journal that goes meanwhile may be in it or not
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err = os.RemoveAll(dir); err == nil {
			err = os.CopyFS(dir, os.DirFS(c.w.dir))
		}
	}
	if err == nil {
		// What is shared between processes in memory is gone with them.
		err = os.RemoveAll(filepath.Join(dir, "cubby.db-shm"))
	}
	if err != nil {
		c.w.t.Error(err)
	}
	c.images = append(c.images, image{dir, int(c.calls.Load())})
}

// watched is a world in which images are taken of a thread and its runs.
func watched(t *testing.T) (w *world, c *camera, s *agent.Service, thread string) {
	w = newWorld(t)
	c = &camera{w: w}
	w.now = func() time.Time {
		c.take()
		return time.Now()
	}
	w.called = func(_ context.Context, call loop.Call) loop.Result {
		c.calls.Add(1)
		c.take()
		call.Output("box", "stdout", "working")
		return loop.Result{Content: "ran " + call.Name}
	}
	s, _ = w.daemon()
	thread = newThread(t, s)
	c.mu.Lock()
	c.on = true
	c.mu.Unlock()
	return w, c, s, thread
}

// each has the next daemon take up each image, one of which is of a killed one.
func (c *camera) each(t *testing.T, check func(t *testing.T, s *agent.Service, im image)) {
	c.mu.Lock()
	c.on = false
	c.mu.Unlock()
	if len(c.images) < 20 {
		t.Fatalf("%d images", len(c.images))
	}
	for i, im := range c.images {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.dir = im.dir
			close(w.model.release)
			w.called = func(context.Context, loop.Call) loop.Result {
				im.called++
				return loop.Result{Content: "ran it later"}
			}
			s, stop := w.daemon()
			check(t, s, im)
			stop()
			if im.called > 1 {
				t.Errorf("the tool ran %d times", im.called)
			}
		})
	}
}

// settled waits for all runs of a thread, and checks that they and the thread are
// sound, and can be followed from anywhere.
func settled(t *testing.T, s *agent.Service, thread string) (runs []conversation.Run, said []string, view agent.ThreadView) {
	t.Helper()
	runs, err := runsOf(acme(t), s, thread, agent.RunQuery{})
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(runs)
	for i, run := range runs {
		all := follow(t, s, thread, run.ID, 0)
		if len(all) == 0 || all[len(all)-1].Event.Ended == nil {
			t.Fatalf("run %d has no end: %+v", i, all)
		}
		if runs[i], err = s.Runs().Get(acme(t), thread, run.ID); err != nil || runs[i].Status != all[len(all)-1].Event.Ended.Status {
			t.Fatalf("run %d is %+v, %v, and its journal says %+v", i, runs[i], err, all[len(all)-1].Event.Ended)
		}
		for k, rec := range all[:len(all)-1] {
			if rec.Event.Ended != nil || k > 0 && rec.Offset <= all[k-1].Offset {
				t.Fatalf("event %d of run %d is %+v", k, i, rec)
			}
			rest := follow(t, s, thread, run.ID, rec.Offset)
			equal(t, "the rest", rest, all[k+1:])
		}
	}
	if view, err = s.Threads().Get(acme(t), thread); err != nil {
		t.Fatal(err)
	}
	return runs, texts(view.Messages), view
}

// TestKilledAtAnyMoment: whenever the daemon is killed, the next one ends its runs, no
// tool runs twice, and the thread goes on.
func TestKilledAtAnyMoment(t *testing.T) {
	_, c, s, thread := watched(t)
	first := begin(t, s, thread, says("call run"))
	n := says("two")
	n.Multitask = conversation.MultitaskEnqueue
	second := begin(t, s, thread, n)
	wait(t, s, thread, second)
	c.each(t, func(t *testing.T, s *agent.Service, im image) {
		runs, said, view := settled(t, s, thread)
		for _, run := range runs {
			if run.Status != conversation.RunSuccess || run.ID != first.ID && run.ID != second.ID {
				t.Errorf("run = %+v", run)
			}
		}
		equal(t, "status", view.Status, conversation.ThreadIdle)
		if len(runs) > 0 {
			if len(said) < 4 || said[1] != "ai:" || !strings.HasPrefix(said[2], "tool:") || said[3] != "ai:did it" {
				t.Errorf("said %q", said)
			}
		}
		if len(runs) == 2 {
			equal(t, "said", said[4:], []string{"human:two", "ai:said two"})
		}
		_, now := do(t, s, thread, says("on"))
		equal(t, "said", now, append(said, "human:on", "ai:said on"))
	})
}

// TestKilledWhileAPersonDecides: the question is kept, and the answer is one of it.
func TestKilledWhileAPersonDecides(t *testing.T) {
	_, c, s, thread := watched(t)
	n := says("call run")
	n.Request.Configurable = map[string]json.RawMessage{"interrupt_on": json.RawMessage(`{"run":true}`)}
	do(t, s, thread, n)
	yes := agent.NewRun{AssistantID: "agent", Request: conversation.RunRequest{
		Command:      &conversation.Command{Resume: json.RawMessage(`{"decisions":[{"type":"approve"}]}`)},
		Configurable: n.Request.Configurable,
	}}
	do(t, s, thread, yes)
	c.each(t, func(t *testing.T, s *agent.Service, im image) {
		runs, said, view := settled(t, s, thread)
		if len(runs) == 1 {
			equal(t, "status", view.Status, conversation.ThreadInterrupted)
			if len(view.Interrupts) != 1 || im.called > 0 {
				t.Fatalf("the thread is %+v after %d calls", view, im.called)
			}
			_, said = do(t, s, thread, yes)
		}
		if len(runs) > 0 && (len(said) != 4 || said[3] != "ai:did it") {
			t.Errorf("said %q", said)
		}
	})
}

// TestKilledWhileARunIsTakenBack: it is gone, or ended.
func TestKilledWhileARunIsTakenBack(t *testing.T) {
	w, c, s, thread := watched(t)
	do(t, s, thread, says("call run"))
	begin(t, s, thread, says("wait"))
	<-w.model.waiting
	n := says("two")
	n.Multitask = conversation.MultitaskRollback
	_, said := do(t, s, thread, n)
	equal(t, "said", said[4:], []string{"human:two", "ai:said two"})
	c.each(t, func(t *testing.T, s *agent.Service, im image) {
		_, _, view := settled(t, s, thread)
		if view.Status == conversation.ThreadBusy || view.Status == conversation.ThreadFailed {
			t.Errorf("the thread is %s", view.Status)
		}
	})
}

// TestKilledAfterACancelWasAnswered: the next daemon ends the run.
func TestKilledAfterACancelWasAnswered(t *testing.T) {
	for name, rollback := range map[string]bool{"interrupt": false, "rollback": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			reached, let := make(chan struct{}), make(chan struct{})
			w.called = func(context.Context, loop.Call) loop.Result {
				close(reached)
				<-let // it does not heed that the run ends
				return loop.Result{Content: "late"}
			}
			s, stop := w.daemon()
			thread := newThread(t, s)
			run := begin(t, s, thread, says("call run"))
			<-reached
			if got, err := s.Runs().Cancel(acme(t), thread, run.ID, rollback, false); err != nil || got.Status != conversation.RunRunning {
				t.Fatalf("Cancel = %+v, %v", got, err)
			}
			killed := newWorld(t)
			killed.dir = t.TempDir()
			// What is shared between processes in memory is gone with them.
			if err := errors.Join(os.CopyFS(killed.dir, os.DirFS(w.dir)), os.RemoveAll(killed.dir+"/cubby.db-shm")); err != nil {
				t.Fatal(err)
			}
			close(let)
			stop()
			killed.called = func(context.Context, loop.Call) loop.Result {
				t.Error("the run went on")
				return loop.Result{Content: "ran it later"}
			}
			next, _ := killed.daemon()
			// The thread is free when the run has ended.
			n := says("on")
			n.Multitask = conversation.MultitaskEnqueue
			if _, said := do(t, next, thread, n); said[len(said)-1] != "ai:said on" {
				t.Errorf("said %q", said)
			}
			got, err := next.Runs().Get(acme(t), thread, run.ID)
			if rollback && !errors.Is(err, errs.NotFound) || !rollback && got.Status != conversation.RunInterrupted {
				t.Errorf("the run is %+v, %v", got, err)
			}
		})
	}
}
