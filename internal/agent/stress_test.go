package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
)

// crowd are clients that do anything with a few threads, as long as a daemon goes on.
type crowd struct {
	t       *testing.T
	s       *agent.Service
	threads []string
}

// expected are errors of which clients hear in a crowd.
func expected(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	switch errs.KindOf(err) {
	case errs.NotFound, errs.Conflict, errs.Unready, errs.Unavailable, errs.OverQuota:
		return true
	}
	return false
}

// step does one thing.
func (c *crowd) step(ctx context.Context, rng *rand.Rand) (what string, err error) {
	s, thread := c.s, c.threads[rng.IntN(len(c.threads))]
	short, cancel := context.WithTimeout(ctx, time.Duration(1+rng.IntN(20))*time.Millisecond)
	defer cancel()
	some := func() (id string) {
		runs, err := runsOf(ctx, s, thread, agent.RunQuery{Limit: 3})
		if err != nil || len(runs) == 0 {
			return "none"
		}
		return runs[rng.IntN(len(runs))].ID
	}
	switch n := rng.IntN(20); {
	case n < 8:
		r := says([]string{"hi", "call run", "wait", "fail"}[rng.IntN(4)])
		r.Multitask = []conversation.Multitask{
			conversation.MultitaskEnqueue, conversation.MultitaskEnqueue, conversation.MultitaskInterrupt, conversation.MultitaskRollback, conversation.MultitaskReject, "",
		}[rng.IntN(6)]
		r.Make = true
		_, _, err = s.Runs().Create(ctx, thread, r)
		return "create", err
	case n < 10:
		_, err = s.Runs().Cancel(short, thread, some(), rng.IntN(2) == 0, rng.IntN(2) == 0)
		return "cancel", err
	case n < 12:
		leave, err := s.Runs().Attach(ctx, thread, some(), rng.IntN(2) == 0)
		if err == nil {
			runtime.Gosched()
			leave()
		}
		return "attach", err
	case n < 15:
		for _, err := range s.Runs().Follow(short, thread, some(), 0) {
			if err != nil {
				return "follow", err
			}
		}
		return "follow", nil
	case n < 16:
		_, _, err = s.Runs().Wait(short, thread, some())
		return "wait", err
	case n < 17:
		_, err = s.Threads().Change(short, thread, agent.StateChange{Values: json.RawMessage(`{"messages":"changed"}`)})
		return "change", err
	case n < 18:
		_, err = s.Threads().Get(ctx, thread)
		return "get", err
	case n < 19:
		return "delete a run", s.Runs().Delete(ctx, thread, some())
	}
	if rng.IntN(3) > 0 {
		return "", nil
	}
	return "delete", s.Threads().Delete(short, thread)
}

// run has the crowd do things until ctx ends.
func (c *crowd) run(ctx context.Context, seed uint64) {
	var wg sync.WaitGroup
	for i := range uint64(8) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, i))
			for ctx.Err() == nil {
				if what, err := c.step(ctx, rng); !expected(err) {
					c.t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
	wg.Wait()
}

// releaseSome lets some of what waits go on, and all of it once it is over.
func (m *model) releaseSome(over <-chan struct{}) {
	for {
		select {
		case <-over:
			close(m.release)
			for range m.waiting { //nolint:revive // nobody else takes them
			}
			return
		case <-m.waiting:
			select {
			case m.release <- struct{}{}:
			default:
			}
		}
	}
}

// TestCrowd: whatever clients do at once, and however often daemons come and go, one
// run of a thread goes on at a time, all of them end, and threads are sound.
func TestCrowd(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	w := newWorld(t)
	var mu sync.Mutex
	inside := map[string]int{}
	w.within = func(thread string) func() {
		count := func(by int) {
			mu.Lock()
			defer mu.Unlock()
			if inside[thread] += by; inside[thread] > 1 {
				t.Error("two runs of a thread go on")
			}
		}
		count(1)
		return func() { count(-1) }
	}
	w.called = func(_ context.Context, c loop.Call) loop.Result {
		runtime.Gosched()
		return loop.Result{Content: "ran " + c.Name}
	}
	over := make(chan struct{})
	go w.model.releaseSome(over)
	threads := []string{"crowd-a", "crowd-b", "crowd-c"}
	for round := range uint64(4) {
		s, stop := w.daemon()
		ctx, cancel := context.WithTimeout(acme(t), 150*time.Millisecond)
		c := &crowd{t: t, s: s, threads: threads}
		if round%2 == 0 {
			c.run(ctx, round) // it stops when all is quiet
			stop()
		} else {
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.run(ctx, round)
			}()
			select {
			case <-time.After(70 * time.Millisecond):
			case <-done:
			}
			stop() // under their feet
			cancel()
			<-done
		}
		cancel()
	}
	close(over)
	s, stop := w.daemon()
	for _, thread := range threads {
		if _, err := s.Threads().Create(acme(t), agent.NewThread{ID: thread, DoNothing: true}); err != nil {
			t.Fatal(err)
		}
		runs, err := runsOf(acme(t), s, thread, agent.RunQuery{Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range runs {
			all := follow(t, s, thread, run.ID, 0)
			if got, err := s.Runs().Get(acme(t), thread, run.ID); err != nil || !got.Status.Ended() || all[len(all)-1].Event.Ended == nil {
				t.Errorf("run %d = %+v, %v", run.Seq, got, err)
			}
		}
		view, err := s.Threads().Get(acme(t), thread)
		if err != nil || view.Status == conversation.ThreadBusy {
			t.Errorf("thread = %+v, %v", view.Thread, err)
		}
		seen := map[string]bool{}
		for _, m := range view.Messages {
			if seen[m.ID] {
				t.Errorf("the message %s is there twice", m.ID)
			}
			seen[m.ID] = true
		}
		_, said := do(t, s, thread, says("on"))
		equal(t, "last", said[len(said)-1], "ai:said on")
	}
	stop()
	close(w.model.waiting)
	if err := goleak.Find(leaks); err != nil {
		t.Error(fmt.Errorf("goroutines are left: %w", err))
	}
}
