package proc

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
)

// A cancel that came between the exit of a command and the note of what it left
// found nothing to end.
func TestLeftByACommandThatHasJustEnded(t *testing.T) {
	r := New(t.Context(), Config{})
	e := r.NewExec("bomb")
	r.enter(e, &plainTree{})
	if left := r.Left("bomb"); left != nil {
		t.Errorf("a command that runs counts as one that left something")
	}
	e.Finish(&guestv1.ExecExit{})
	if left := r.Left("bomb"); left != e {
		t.Errorf("Left = %v, want the command", left)
	}
	if left := r.Left(""); left != nil {
		t.Errorf("Left without a uid = %v", left)
	}
}

// A command that ended of the first signal of a shutdown, and whose exit was not
// known yet as the kill followed, was said to have ended by itself.
func TestCauseOfAnEndIsOverwritten(t *testing.T) {
	const (
		exited   = guestv1.ExitReason_EXIT_REASON_EXITED
		timeout  = guestv1.ExitReason_EXIT_REASON_TIMEOUT
		shutdown = guestv1.ExitReason_EXIT_REASON_SHUTDOWN
		killed   = guestv1.ExitReason_EXIT_REASON_KILLED
		oom      = guestv1.ExitReason_EXIT_REASON_OOM
		lost     = guestv1.ExitReason_EXIT_REASON_LOST
		intr     = syscall.SIGINT
		term     = syscall.SIGTERM
		kill     = syscall.SIGKILL
	)
	type causes = []Cause
	by := func(sig syscall.Signal) syscall.WaitStatus { return syscall.WaitStatus(sig) }
	code := func(n int) syscall.WaitStatus { return syscall.WaitStatus(n << 8) }
	for _, tt := range []struct {
		name   string
		causes causes
		status syscall.WaitStatus
		want   guestv1.ExitReason
	}{
		{"no cause", nil, by(kill), exited},
		{"no cause, by itself", nil, code(1), exited},
		{"terminated", causes{{Reason: shutdown, Signal: term}}, by(term), shutdown},
		{"terminated, and the kill follows", causes{{Reason: shutdown, Signal: term}, {Reason: shutdown, Signal: kill}}, by(term), shutdown},
		{"a shell says it", causes{{Reason: shutdown, Signal: term}, {Reason: shutdown, Signal: kill}}, code(128 + 15), shutdown},
		{"killed after all", causes{{Reason: shutdown, Signal: term}, {Reason: shutdown, Signal: kill}}, by(kill), shutdown},
		{"a shell says that", causes{{Reason: shutdown, Signal: term}, {Reason: shutdown, Signal: kill}}, code(128 + 9), shutdown},
		{"in order", causes{{Reason: shutdown, Signal: term}, {Reason: shutdown, Signal: kill}}, code(0), exited},
		{"of another signal", causes{{Reason: shutdown, Signal: term}, {Reason: shutdown, Signal: kill}}, by(syscall.SIGSEGV), exited},
		{"the first kill", causes{{Reason: timeout, Signal: kill}, {Reason: shutdown, Signal: kill}}, by(kill), timeout},
		{"a kill, then a signal", causes{{Reason: timeout, Signal: kill}, {Reason: shutdown, Signal: term}}, by(kill), timeout},
		{"a kill, and the signal was sooner", causes{{Reason: timeout, Signal: kill}, {Reason: shutdown, Signal: term}}, by(term), shutdown},
		{"the first signal", causes{{Reason: killed, Signal: term}, {Reason: shutdown, Signal: term}}, by(term), killed},
		{"a shell says the first signal", causes{{Reason: killed, Signal: term}, {Reason: shutdown, Signal: term}, {Reason: shutdown, Signal: kill}}, code(128 + 15), killed},
		{"one of two signals", causes{{Reason: killed, Signal: intr}, {Reason: shutdown, Signal: term}}, by(intr), killed},
		{"cancelled, then shut down", causes{{Reason: killed, Signal: kill}, {Reason: shutdown, Signal: term}, {Reason: shutdown, Signal: kill}}, by(kill), killed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := &Exec{}
			for _, c := range tt.causes {
				e.setCause(c)
			}
			if exit := e.conclude(tt.status, true, func() bool { return false }); exit.GetReason() != tt.want {
				t.Errorf("reason %v, want %v", exit.GetReason(), tt.want)
			}
		})
	}

	// One that survived a signal ended of the next.
	synctest.Test(t, func(t *testing.T) {
		e := &Exec{}
		e.setCause(Cause{Reason: killed, Signal: term})
		time.Sleep(dyingTime)
		e.setCause(Cause{Reason: shutdown, Signal: term})
		time.Sleep(dyingTime - 1)
		e.setCause(Cause{Reason: killed, Signal: term})
		if exit := e.conclude(by(term), true, func() bool { return false }); exit.GetReason() != shutdown {
			t.Errorf("reason %v, want that of the second", exit.GetReason())
		}
	})

	// Whose supervisor is lost has no status: only a kill explains that.
	e := &Exec{}
	e.setCause(Cause{Reason: shutdown, Signal: term})
	if exit := e.conclude(0, false, nil); exit.GetReason() != lost {
		t.Errorf("no status after a signal: %v, want %v", exit.GetReason(), lost)
	}
	e.setCause(Cause{Reason: shutdown, Signal: kill})
	if exit := e.conclude(0, false, nil); exit.GetReason() != shutdown {
		t.Errorf("no status after a kill: %v, want %v", exit.GetReason(), shutdown)
	}
	// The memory watchdog kills too: what the agent was asked for counts first.
	e = &Exec{oom: "too large"}
	if exit := e.conclude(by(kill), true, nil); exit.GetReason() != oom {
		t.Errorf("killed for its memory: %v, want %v", exit.GetReason(), oom)
	}
	e.setCause(Cause{Reason: killed, Signal: term})
	if exit := e.conclude(by(kill), true, nil); exit.GetReason() != oom {
		t.Errorf("killed for its memory after a signal: %v, want %v", exit.GetReason(), oom)
	}
	e.setCause(Cause{Reason: killed, Signal: kill})
	if exit := e.conclude(by(kill), true, nil); exit.GetReason() != killed {
		t.Errorf("killed for its memory and cancelled: %v, want %v", exit.GetReason(), killed)
	}
}
