package agent_test

import (
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
)

// TestATenantKeepsWhatItMay: a tenant that has all that may be kept of it loses the
// history of threads that it does not use, then can begin nothing until it deletes some;
// a thread that waits for an answer keeps all.
func TestATenantKeepsWhatItMay(t *testing.T) {
	w := newWorld(t)
	var ahead atomic.Int64
	w.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	w.bounds.Bytes = 256 << 10
	s, _ := w.daemon()
	asks := newThread(t, s)
	n := says("call run")
	n.Request.Configurable = map[string]json.RawMessage{"interrupt_on": json.RawMessage(`{"run":true}`)}
	do(t, s, asks, n)
	old := newThread(t, s)
	long := strings.Repeat("x", 10<<10)
	for range 3 {
		do(t, s, old, says(long))
	}
	ahead.Store(int64(time.Hour))
	var full error
	var last string
	for i := 0; i < 100 && full == nil; i++ {
		made, err := s.Threads().Create(acme(t), agent.NewThread{})
		if full = err; err == nil {
			var run conversation.Run
			if run, _, full = s.Runs().Create(acme(t), made.ID, says(long)); full == nil {
				wait(t, s, made.ID, run)
				last = made.ID
			}
		}
	}
	if !errors.Is(full, errs.OverQuota) || !strings.Contains(errs.Public(full).Hint, "max-history-per-tenant") {
		t.Fatalf("more than may be kept: %v, want over_quota with a way out", full)
	}
	if states, err := historyOf(acme(t), s, old, agent.HistoryQuery{}); err != nil || len(states) != 1 || len(states[0].Messages) != 6 {
		t.Errorf("the unused thread has %d states, %v, want its newest", len(states), err)
	}
	if runs, err := runsOf(acme(t), s, old, agent.RunQuery{}); err != nil || len(runs) != 0 {
		t.Errorf("the unused thread has the runs %v, %v", runs, err)
	}
	if states, err := historyOf(acme(t), s, asks, agent.HistoryQuery{}); err != nil || len(states) < 2 {
		t.Errorf("the thread that waits for an answer has %d states, %v, want all", len(states), err)
	}
	for name, err := range map[string]error{
		"an assistant":       second(s.Assistants().Create(acme(t), agent.NewAssistant{GraphID: "agent"})),
		"metadata":           second(s.Threads().Update(acme(t), last, map[string]json.RawMessage{"k": json.RawMessage(`1`)})),
		"a state":            second(s.Threads().Change(acme(t), last, agent.StateChange{})),
		"a copy of a thread": second(s.Threads().Copy(acme(t), last)),
	} {
		if !errors.Is(err, errs.OverQuota) {
			t.Errorf("%s: %v, want over_quota", name, err)
		}
	}
	// Others are not concerned, and who deletes can go on.
	if _, err := s.Threads().Create(t.Context(), agent.NewThread{}); err != nil {
		t.Errorf("a thread of nobody: %v", err)
	}
	for _, id := range []string{old, last} {
		if err := s.Threads().Delete(acme(t), id); err != nil {
			t.Fatal(err)
		}
	}
	do(t, s, newThread(t, s), says("short"))
}

// TestNothingBeginsBelowTheDiskReserve: neither threads nor runs are added to a disk
// that is full.
func TestNothingBeginsBelowTheDiskReserve(t *testing.T) {
	w := newWorld(t)
	s, _ := w.daemon()
	thread := newThread(t, s)
	w.full.Store(true)
	_, _, err := s.Runs().Create(acme(t), thread, says("x"))
	for name, err := range map[string]error{
		"a run": err, "a thread": second(s.Threads().Create(acme(t), agent.NewThread{})),
		"an assistant": second(s.Assistants().Create(acme(t), agent.NewAssistant{GraphID: "agent"})),
	} {
		if !errors.Is(err, errs.Exhausted) {
			t.Errorf("%s = %v, want what the disk says", name, err)
		}
	}
	w.full.Store(false)
	do(t, s, thread, says("x"))
}
