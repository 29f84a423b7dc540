package core

import (
	"context"
	"errors"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

const (
	// noteStartAfter is how long a start waits to be written down: most
	// commands are over by then and cost one write less.
	noteStartAfter = 50 * time.Millisecond
	// ackDelay and ackBytes say when the agent is told what is safe, so that
	// its buffer never fills while the journal keeps up.
	ackDelay = 20 * time.Millisecond
	ackBytes = 128 << 10
	// verdictTime is what the news of a sandbox's death may take.
	verdictTime = 2 * time.Second
	// timeoutSlack is what an agent gets to enforce a time limit before core
	// does, and again to report the end before core stops waiting.
	timeoutSlack = 20 * time.Second
)

// liveExec is an exec while it is not finished. Its pump carries the output
// from the agent to the journal, whoever listens.
type liveExec struct {
	run *run
	uid sandbox.UID
	seq int64
	log *journal.Log
	// stdin serialises writers that append.
	stdin sync.Mutex

	ctx    context.Context // of its stream; ends with it
	cancel context.CancelFunc

	begun chan struct{} // closed when the agent runs it, or it is over
	done  chan struct{} // closed when its end is known and in the journal

	mu      sync.Mutex
	exec    sandbox.Exec // as clients see it; guarded by mu
	noted   bool         // the store knows that it started; guarded by mu
	verdict *ending      // core's own reason for its end; guarded by mu
	// offset is where the agent's output goes on; it is the journal's size
	// until the journal cannot be written any more.
	offset int64 // guarded by mu
	broken bool  // the journal cannot be written; guarded by mu

	acks     chan struct{} // has a token when offset moved
	backstop *time.Timer   // nil without a time limit
}

func newLiveExec(r *run, x sandbox.Exec, log *journal.Log) *liveExec {
	e := &liveExec{
		run: r, uid: x.UID, seq: x.Seq, log: log, exec: x,
		begun: make(chan struct{}), done: make(chan struct{}), acks: make(chan struct{}, 1),
		offset: log.Size(), noted: x.Status == sandbox.ExecRunning,
	}
	e.ctx, e.cancel = context.WithCancel(r.ctx)
	// A finished exec is shown without its env, as the store shows it.
	e.exec.Spec.Env = nil
	if e.noted {
		close(e.begun)
		e.arm()
	}
	return e
}

// snapshot returns the exec as it stands.
func (e *liveExec) snapshot() sandbox.Exec {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.exec
}

// pump runs the exec to its end. A lost connection is made again: the journal
// knows how far the output came. It leaves an unfinished exec to the next
// daemon when the service ends.
func (e *liveExec) pump(start *guest.Start) {
	defer e.log.Close()
	defer e.cancel()
	stop := make(chan struct{})
	var acker sync.WaitGroup
	acker.Go(func() { e.acknowledge(stop) })
	defer acker.Wait()
	defer close(stop)

	r := e.run
	delay := retryFirst
	for {
		if e.started() {
			start = nil // by now only an attach is right
		}
		before := e.position()
		err := e.stream(start)
		switch {
		case err == nil:
			return
		case r.isOver():
			e.finish(e.lost(), time.Time{})
			return
		case r.ctx.Err() != nil:
			return
		case e.givenUp():
			e.finish(e.lost(), time.Time{})
			return
		case !errors.Is(err, errs.Unavailable) && !errors.Is(err, io.ErrUnexpectedEOF):
			e.finish(e.refused(err), time.Time{})
			return
		}
		if e.position() > before {
			delay = retryFirst
		}
		delay = r.pause(delay)
	}
}

// awaitVerdict waits a moment until core knows why the sandbox ends: an agent
// that goes down ends its commands, and cannot say what ended it.
func (e *liveExec) awaitVerdict() {
	if e.run.endingNow() != nil {
		return
	}
	t := time.NewTimer(verdictTime)
	defer t.Stop()
	select {
	case <-e.run.over.Done():
	case <-e.run.ctx.Done():
	case <-t.C:
	}
}

// stream follows the exec on one connection to its end.
func (e *liveExec) stream(start *guest.Start) error {
	st, err := e.run.guest.Exec(e.ctx, e.uid, start, e.position())
	if err != nil {
		return err
	}
	defer st.Close()
	for {
		m, err := st.Next()
		switch {
		case errors.Is(err, io.EOF):
			return errs.E(errs.Unavailable, "the sandbox's agent closed the stream")
		case err != nil:
			return err
		case m.Started != nil:
			e.start(m.Started.At)
		case m.Output != nil:
			if err := e.take(*m.Output); err != nil {
				return err
			}
		case m.Exit != nil:
			if end := e.position(); m.Exit.Offset > end {
				return errs.E(errs.Unavailable, "output is missing between %d and %d", end, m.Exit.Offset)
			}
			if m.Exit.Reason == sandbox.EndStopped {
				e.awaitVerdict()
			}
			e.finish(m.Exit.Exit, m.Exit.At)
			return nil
		}
	}
}

// start notes that the command runs since a time of the agent's clock.
func (e *liveExec) start(at time.Time) {
	now := e.run.s.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.exec.Status != sandbox.ExecPending {
		return
	}
	e.exec.Status, e.exec.StartedAt = sandbox.ExecRunning, within(at, e.exec.CreatedAt, now)
	close(e.begun)
	time.AfterFunc(noteStartAfter, func() {
		e.run.s.life.spawn(e.noteStart)
	})
	e.arm()
}

// noteStart writes the start down, unless the end was faster.
func (e *liveExec) noteStart(ctx context.Context) {
	e.mu.Lock()
	x := e.exec
	due := x.Status == sandbox.ExecRunning && !e.noted
	e.noted = e.noted || due
	e.mu.Unlock()
	if !due {
		return
	}
	err := e.run.s.cfg.Store.StartExec(context.WithoutCancel(ctx), x.Box, x.Seq, x.StartedAt,
		event.New(x.Box, "", event.ExecStart{Seq: x.Seq}))
	if err != nil && !errors.Is(err, errs.WrongState) {
		e.run.s.log.Error("note the start of an exec", telemetry.KeyUID, x.Box, telemetry.KeySeq, x.Seq, telemetry.KeyErr, err)
	}
}

// take puts a piece of output into the journal. When the journal cannot be
// written the command is killed, and what comes still is dropped.
func (e *liveExec) take(o sandbox.Output) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if o.Offset > e.offset {
		return errs.E(errs.Unavailable, "output is missing between %d and %d", e.offset, o.Offset)
	}
	if !e.broken && !e.exec.Status.Finished() {
		if err := e.log.Append(o); err != nil {
			e.broken = true
			e.verdict = &ending{sandbox.EndDiskFull, "the host could not keep the command's output"}
			e.run.s.log.Error("write a journal", telemetry.KeyUID, e.exec.Box, telemetry.KeySeq, e.seq, telemetry.KeyErr, err)
			e.run.s.life.spawn(func(ctx context.Context) { e.kill(ctx, sandbox.EndKilled) })
		}
	}
	if end := o.Offset + int64(len(o.Data)); end > e.offset {
		e.offset = end
		select {
		case e.acks <- struct{}{}:
		default:
		}
	}
	return nil
}

// acknowledge tells the agent what it need not keep any more, until stop.
func (e *liveExec) acknowledge(stop <-chan struct{}) {
	r := e.run
	acked := e.position()
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-e.acks:
		}
		if e.position()-acked < ackBytes {
			t.Reset(ackDelay)
		wait:
			for e.position()-acked < ackBytes {
				select {
				case <-stop:
					return
				case <-e.acks:
				case <-t.C:
					break wait
				}
			}
		}
		offset := e.position()
		ctx, cancel := context.WithTimeout(r.ctx, undoTimeout)
		err := r.guest.Ack(ctx, e.uid, offset)
		cancel()
		if err == nil {
			acked = offset
		}
		// An ack that was lost is made up for by the next one, or by the
		// offset of the next attach.
	}
}

func (e *liveExec) position() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.offset
}

func (e *liveExec) started() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.exec.Status != sandbox.ExecPending
}

// arm sets the backstop of the exec's own time limit. The caller holds mu.
func (e *liveExec) arm() {
	limit := e.exec.Spec.Timeout
	if limit == nil || *limit <= 0 || e.backstop != nil {
		return
	}
	left := max(0, *limit-e.run.s.now().Sub(e.exec.StartedAt)) + timeoutSlack
	e.backstop = time.AfterFunc(left, func() {
		e.run.s.life.spawn(e.enforceTimeout)
	})
}

// enforceTimeout is for agents that do not keep a time limit: it kills the
// command, and when even that has no effect stops waiting for it.
func (e *liveExec) enforceTimeout(ctx context.Context) {
	e.run.s.log.Warn("an agent did not enforce a time limit", telemetry.KeyUID, e.run.uid, telemetry.KeySeq, e.seq)
	ctx, cancel := context.WithTimeout(ctx, timeoutSlack)
	defer cancel()
	e.kill(ctx, sandbox.EndTimeout)
	select {
	case <-e.done:
		return
	case <-e.run.ctx.Done():
		return
	case <-ctx.Done():
	}
	e.mu.Lock()
	if e.verdict == nil {
		e.verdict = &ending{sandbox.EndTimeout, "the time limit was over and the sandbox's agent did not answer"}
	}
	e.mu.Unlock()
	e.finish(e.lost(), time.Time{})
}

func (e *liveExec) givenUp() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// kill ends everything that descends from the command.
func (e *liveExec) kill(ctx context.Context, reason sandbox.EndReason) {
	if err := e.run.guest.Signal(ctx, e.uid, syscall.SIGKILL, true, reason); err != nil && !errors.Is(err, errs.NotFound) {
		e.run.s.log.Warn("kill an exec", telemetry.KeyUID, e.run.uid, telemetry.KeySeq, e.seq, telemetry.KeyErr, err)
	}
}

// lost is the exit of an exec whose sandbox is gone.
func (e *liveExec) lost() sandbox.Exit {
	if end := e.run.endingNow(); end != nil {
		return sandbox.Exit{Reason: end.reason, Message: end.message}
	}
	return sandbox.Exit{Reason: sandbox.EndLost, Message: "the sandbox's agent does not know the command any more"}
}

// refused is the exit of an exec that the agent would not start or does not
// know.
func (e *liveExec) refused(err error) sandbox.Exit {
	info := errs.Public(err)
	if e.started() {
		e.run.s.log.Error("follow an exec", telemetry.KeyUID, e.run.uid, telemetry.KeySeq, e.seq, telemetry.KeyErr, err)
		if info.Kind != errs.NotFound {
			return sandbox.Exit{Reason: sandbox.EndLost, Message: "its output could not be followed: " + info.Message}
		}
		return e.lost()
	}
	return sandbox.Exit{Reason: sandbox.EndNotRun, Message: info.Message}
}

// finish writes the end down and lets those go on who wait for it. Only the
// first call does anything. The journal comes first and is enough: a crash
// before the store has heard of the end is made up for at the next boot, so
// nobody waits for the store. Until it knows, the exec stays a live one. The
// time is of the agent's clock; zero is now.
func (e *liveExec) finish(exit sandbox.Exit, at time.Time) {
	s := e.run.s
	e.mu.Lock()
	if e.exec.Status.Finished() {
		e.mu.Unlock()
		return
	}
	exit = e.judge(exit)
	// Followers get the exit even when it cannot be written.
	finishErr := e.log.Finish(exit)
	exit.StdoutCut, exit.StderrCut = e.log.Cut()
	now := s.now()
	began := e.exec.StartedAt
	if began.IsZero() {
		began, at = e.exec.CreatedAt, now
	}
	e.exec.Exit, e.exec.Status, e.exec.FinishedAt = &exit, endStatus(exit), within(at, began, now)
	if e.backstop != nil {
		e.backstop.Stop()
	}
	x := e.exec
	startNoted := e.noted || x.StartedAt.IsZero()
	e.noted = true
	e.mu.Unlock()
	if finishErr != nil {
		s.log.Error("finish a journal", telemetry.KeyUID, x.Box, telemetry.KeySeq, x.Seq, telemetry.KeyErr, finishErr)
	} else {
		e.tell(x)
	}
	if err := s.writeEnd(context.WithoutCancel(e.run.ctx), x, startNoted); err != nil {
		// The exec stays a live one, so that its end is seen all the same;
		// the next boot copies it from the journal.
		s.log.Error("write the end of an exec", telemetry.KeyUID, x.Box, telemetry.KeySeq, x.Seq, telemetry.KeyErr, err)
	} else {
		e.run.forget(e)
	}
	if finishErr != nil {
		e.tell(x)
	}
	e.cancel()
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

// tell wakes those who wait for the end.
func (e *liveExec) tell(x sandbox.Exec) {
	if x.StartedAt.IsZero() {
		close(e.begun)
	}
	close(e.done)
}

// judge replaces the agent's word for an end by core's, where core knows
// better why it happened. The caller holds mu.
func (e *liveExec) judge(exit sandbox.Exit) sandbox.Exit {
	why := e.verdict
	if why == nil && exit.Reason == sandbox.EndStopped {
		why = e.run.endingNow()
	}
	if why != nil {
		exit.Reason, exit.Message = why.reason, why.message
	}
	return exit
}

func endStatus(exit sandbox.Exit) sandbox.ExecStatus {
	if exit.Reason == sandbox.EndExited {
		return sandbox.ExecDone
	}
	return sandbox.ExecError
}

// writeEnd stores a finished exec, and its start where the store has not heard
// of that.
func (s *Service) writeEnd(ctx context.Context, x sandbox.Exec, startNoted bool) error {
	var events []sandbox.Event
	if !startNoted {
		started := event.New(x.Box, "", event.ExecStart{Seq: x.Seq})
		started.Time = x.StartedAt
		events = append(events, started)
	}
	events = append(events, event.New(x.Box, "", event.ExecEnd{Seq: x.Seq, Reason: x.Exit.Reason, Code: x.Exit.Code}))
	var took time.Duration
	if !x.StartedAt.IsZero() {
		took = x.FinishedAt.Sub(x.StartedAt)
	}
	s.metrics.Exec(string(x.Exit.Reason), took)
	_, err := s.cfg.Store.FinishStartedExec(ctx, x.Box, x.Seq, x.StartedAt, *x.Exit, x.Status, x.FinishedAt, events...)
	return err
}
