package live

import (
	"context"
	"time"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// arm sets the backstop of the exec's own time limit. The caller holds mu.
func (e *Exec) arm() {
	limit := e.exec.Spec.Timeout
	if limit == nil || *limit <= 0 || e.timers.backstop != nil {
		return
	}
	left := max(0, *limit-e.run.s.cfg.Now().Sub(e.run.since(e.exec.StartedAt)))
	slack := timeoutSlack
	if e.isCell() {
		e.timers.helper = time.AfterFunc(left, e.helpCell)
		slack += interruptGrace
	}
	e.timers.backstop = time.AfterFunc(left+slack, func() {
		e.run.s.cfg.Gate.Spawn(e.enforceTimeout)
	})
}

// awaitBegin sets the backstop of an exec that has not begun: its time limit bounds how
// long it waits for an agent that does not answer.
func (e *Exec) awaitBegin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if limit := e.exec.Spec.Timeout; limit != nil && *limit > 0 && e.exec.Status == sandbox.ExecPending {
		e.timers.backstop = time.AfterFunc(*limit+timeoutSlack, func() { e.run.s.cfg.Gate.Spawn(e.endUnbegun) })
	}
}

// endUnbegun ends an exec that has not begun in its time limit, unless the agent
// answers: then it is about to begin it.
func (e *Exec) endUnbegun(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reportSlack)
	defer cancel()
	_, err := e.run.Guest.Hello(ctx)
	switch {
	case e.started() || e.run.ctx.Err() != nil || e.run.execs.isSuspended():
	case err == nil:
		e.awaitBegin()
	default:
		e.unanswered()
	}
}

// enforceTimeout is for agents that do not keep a time limit: it kills the
// command, and when even that has no effect stops waiting for it.
func (e *Exec) enforceTimeout(ctx context.Context) {
	e.run.s.cfg.Log.Warn("an agent did not enforce a time limit", telemetry.KeyUID, e.run.UID, telemetry.KeySeq, e.seq)
	ctx, cancel := context.WithTimeout(ctx, reportSlack)
	defer cancel()
	e.kill(ctx, sandbox.EndTimeout)
	select {
	case <-e.done:
		return
	case <-e.run.ctx.Done():
		return
	case <-ctx.Done():
	}
	if e.run.execs.isSuspended() {
		return // it goes on with the next run
	}
	e.unanswered()
}

// unanswered ends an exec whose time limit is over without the agent.
func (e *Exec) unanswered() {
	e.mu.Lock()
	if e.verdict == nil {
		e.verdict = &Ending{sandbox.EndTimeout, "the time limit was over and the sandbox's agent did not answer"}
	}
	e.mu.Unlock()
	e.finish(e.lost(), time.Time{})
}

func (e *Exec) givenUp() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// lost is the exit of an exec whose sandbox is gone.
func (e *Exec) lost() sandbox.Exit {
	if end := e.run.execs.endingNow(); end != nil {
		return end.exit()
	}
	return sandbox.Exit{Reason: sandbox.EndLost, Message: "the sandbox's agent does not know the command any more"}
}

// forgottenSecrets is said of a pending command that cannot be started any
// more.
const forgottenSecrets = "the daemon was restarted before the command began, and its credentials were only in memory"

// refused is the exit of an exec that the agent would not start or does not
// know.
func (e *Exec) refused(err error) sandbox.Exit {
	info := errs.Public(err)
	if e.started() {
		e.run.s.cfg.Log.Error("follow an exec", telemetry.KeyUID, e.run.UID, telemetry.KeySeq, e.seq, telemetry.KeyErr, err)
		if info.Kind != errs.NotFound {
			return sandbox.Exit{Reason: sandbox.EndLost, Message: "its output could not be followed: " + info.Message}
		}
		return e.lost()
	}
	if e.exec.Spec.NeedsSecrets && info.Kind == errs.NotFound {
		return sandbox.Exit{Reason: sandbox.EndLost, Message: forgottenSecrets}
	}
	if info.Kind == errs.WrongState {
		// Its turn came while the sandbox was being stopped.
		if end := e.run.execs.endingNow(); end != nil {
			return end.exit()
		}
	}
	return sandbox.Exit{Reason: sandbox.EndNotRun, Message: info.Message}
}

// finish writes the end down and lets those go on who wait for it. Only the
// first call does anything. The journal comes first and is enough: a crash
// before the store has heard of the end is made up for at the next boot, so
// nobody waits for the store. Until it knows, the exec stays a live one. The
// time is of the agent's clock; zero is now.
func (e *Exec) finish(exit sandbox.Exit, at time.Time) {
	s := e.run.s
	e.mu.Lock()
	if e.exec.Status.Finished() {
		e.mu.Unlock()
		return
	}
	exit = e.judge(exit)
	// Followers get the exit even when it cannot be written.
	finishErr := e.log.Finish(exit)
	exit = withCuts(exit, e.log)
	now := s.cfg.Now()
	began := e.exec.StartedAt
	if began.IsZero() {
		began, at = e.exec.CreatedAt, now
	}
	e.exec.Exit, e.exec.Status, e.exec.FinishedAt = &exit, endStatus(exit), within(at, began, now)
	e.exec.Result = s.cfg.Operations.resultOf(context.WithoutCancel(e.run.ctx), s.cfg.Log, e.exec)
	e.timers.stop()
	x := e.exec
	e.mu.Unlock()
	// Before anybody hears of the end: what is no use any more was one just now.
	if e.service == nil {
		e.run.activity.Used()
	}
	if finishErr != nil {
		s.cfg.Log.Error("finish a journal", telemetry.KeyUID, x.Box, telemetry.KeySeq, x.Seq, telemetry.KeyErr, finishErr)
	} else {
		e.tell(x)
	}
	if err := e.writeEnd(context.WithoutCancel(e.run.ctx), x); err != nil {
		s.cfg.Log.Error("write the end of an exec; it is tried again",
			telemetry.KeyUID, x.Box, telemetry.KeySeq, x.Seq, telemetry.KeyErr, err)
		s.cfg.Gate.Spawn(func(ctx context.Context) { e.writeEndLate(ctx, x) })
	} else {
		e.run.execs.forget(e)
	}
	if finishErr != nil {
		e.tell(x)
	}
	e.cancel()
}

func (e *Exec) writeEnd(ctx context.Context, x sandbox.Exec) error {
	e.stored.mu.Lock()
	defer e.stored.mu.Unlock()
	err := e.run.s.writeEnd(ctx, x, e.stored.noted || x.StartedAt.IsZero())
	e.stored.noted = e.stored.noted || err == nil
	return err
}

// writeEndLate writes the end when the store can be written again. Until then
// the exec stays a live one, so that its end is seen all the same. The end of the
// service is the last attempt; after that the next boot copies the end from the
// journal, if that could be written.
func (e *Exec) writeEndLate(ctx context.Context, x sandbox.Exec) {
	for pauses := gate.NewPauses(); ; gate.Pause(ctx, pauses) {
		last := ctx.Err() != nil
		if e.writeEnd(context.WithoutCancel(ctx), x) == nil {
			e.run.execs.forget(e)
			return
		}
		if last {
			return
		}
	}
}

// within keeps an agent's word for a time between what the host saw itself;
// a zero one is the last moment.
func within(at, first, last time.Time) time.Time {
	switch {
	case at.IsZero() || at.After(last):
		return last
	case at.Before(first):
		return first
	}
	return at
}

// withCuts is an exit with what its log did not keep beside what never came.
func withCuts(exit sandbox.Exit, log *journal.Log) sandbox.Exit {
	if noted := log.Exit(); noted != nil {
		exit.StdoutCut, exit.StderrCut, exit.RichCut = noted.StdoutCut, noted.StderrCut, noted.RichCut
		return exit
	}
	stdout, stderr, rich := log.Cut()
	exit.StdoutCut += stdout
	exit.StderrCut += stderr
	exit.RichCut += rich
	return exit
}

// tell wakes those who wait for the end.
func (e *Exec) tell(x sandbox.Exec) {
	if x.StartedAt.IsZero() {
		close(e.begun)
	}
	close(e.done)
}

// judge replaces the agent's word for an end by core's, where core knows
// better why it happened. The caller holds mu.
func (e *Exec) judge(exit sandbox.Exit) sandbox.Exit {
	why := e.verdict
	if why == nil && endsWithSandbox(exit.Reason) {
		why = e.run.execs.endingNow()
	}
	if why != nil {
		exit.Reason, exit.Message = why.Reason, why.Message
	}
	return exit
}

// endsWithSandbox reports whether an agent's reason may be the end of the whole
// sandbox as the agent sees it: it was told to shut down, or what watches over
// the command was killed before the agent itself.
func endsWithSandbox(reason sandbox.EndReason) bool {
	return reason == sandbox.EndStopped || reason == sandbox.EndLost
}

func endStatus(exit sandbox.Exit) sandbox.ExecStatus {
	if exit.Reason == sandbox.EndExited {
		return sandbox.ExecDone
	}
	return sandbox.ExecError
}

// writeEnd stores a finished exec, and its start where the store has not heard
// of that.
func (s *Sandboxes) writeEnd(ctx context.Context, x sandbox.Exec, startNoted bool) error {
	var events []sandbox.Event
	if !startNoted {
		events = append(events, event.Began(x))
	}
	first, err := s.cfg.Store.FinishStartedExec(ctx, x, append(events, event.Ended(x)...)...)
	if first {
		s.cfg.Metrics.Exec(string(x.Exit.Reason), x.Took())
	}
	return err
}
