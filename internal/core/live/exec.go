package live

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cubbyhq/cubby/internal/core/gate"
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
	// does; a fork storm leaves it little time.
	timeoutSlack = 5 * time.Second
	// reportSlack is what it gets then to report the end before core stops
	// waiting.
	reportSlack = 20 * time.Second
	// interruptGrace is what an agent gives a cell to heed an interrupt before
	// it kills the kernel.
	interruptGrace = 5 * time.Second
)

// Exec is an exec while it is not finished. Its pump carries the output from the
// agent to the journal, whoever listens.
type Exec struct {
	run *Run
	uid sandbox.UID
	seq int64
	log *journal.Log
	marks
	pid atomic.Int64 // inside the sandbox; 0: not known
	// stdin serialises writers that append.
	stdin sync.Mutex

	ctx    context.Context // of its stream; ends with it
	cancel context.CancelFunc

	begun chan struct{} // closed when the agent runs it, or it is over
	done  chan struct{} // closed when its end is known and in the journal

	stored  stored
	viewers atomic.Int32 // of a terminal

	mu      sync.Mutex
	exec    sandbox.Exec      // as clients see it; guarded by mu
	secrets map[string]string // that it begins with, nil once it has begun; guarded by mu
	verdict *Ending           // core's own reason for its end; guarded by mu
	intake  intake            // guarded by mu
	timers  timers            // guarded by mu
}

// marks are what an exec is beside a command.
type marks struct {
	terminal string              // the name of the terminal whose program this is; "": none
	kernel   string              // whose cell this is; "": a command
	service  *sandbox.ServiceRun // whose run this is; nil: none
}

// stored is what the store knows of an exec.
type stored struct {
	mu    sync.Mutex // held around writes
	noted bool       // that it started; guarded by mu
}

// intake is how far the output came.
type intake struct {
	// offset is where the agent's output goes on; it is the journal's size
	// until the journal cannot be written any more.
	offset int64
	broken bool          // the journal cannot be written
	acks   chan struct{} // has a token when offset moved; needs no lock
}

// timers are what is to happen to an exec later.
type timers struct {
	backstop *time.Timer // nil without a time limit
	helper   *time.Timer // calls helpCell; nil without a time limit, and for commands
	helped   bool        // helpKills runs for it, or did
	killed   bool        // KillAll has begun to end it
	note     *time.Timer // calls noteStart; nil before the start
}

// stop ends those that are set.
func (t *timers) stop() {
	for _, timer := range []*time.Timer{t.backstop, t.helper, t.note} {
		if timer != nil {
			timer.Stop()
		}
	}
}

func newExec(r *Run, x sandbox.Exec, log *journal.Log) *Exec {
	e := &Exec{
		run: r, uid: x.UID, seq: x.Seq, log: log, exec: x,
		marks: marks{terminal: x.Spec.Terminal, service: x.Spec.Service},
		begun: make(chan struct{}), done: make(chan struct{}),
		intake: intake{offset: log.Size(), acks: make(chan struct{}, 1)},
	}
	e.stored.noted = x.Status == sandbox.ExecRunning
	e.ctx, e.cancel = context.WithCancel(r.ctx)
	if x.Spec.Cell != nil {
		e.kernel = x.Spec.Cell.Kernel
	}
	if x.Status == sandbox.ExecPending {
		e.secrets = x.Spec.Secrets
	}
	// A finished exec is shown without its env, as the store shows it.
	e.exec.Spec.Env, e.exec.Spec.Secrets = nil, nil
	if e.stored.noted {
		close(e.begun)
		e.arm()
	}
	return e
}

// isCell reports whether it is code for a kernel.
func (e *Exec) isCell() bool { return e.kernel != "" }

// Done is closed when the end of the exec is known and in its journal.
func (e *Exec) Done() <-chan struct{} { return e.done }

// Snapshot returns the exec as it stands.
func (e *Exec) Snapshot() sandbox.Exec {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.exec
}

// pump runs the exec to its end. A lost connection is made again: the journal
// knows how far the output came. It leaves an unfinished exec to the next
// daemon when the service ends.
func (e *Exec) pump(start *guest.Start) {
	defer telemetry.Close(e.run.s.cfg.Log, e.log)
	defer e.cancel()
	stop := make(chan struct{})
	var acker sync.WaitGroup
	acker.Go(func() { e.acknowledge(stop) })
	defer acker.Wait()
	defer close(stop)

	r := e.run
	pauses := gate.NewPauses()
	e.awaitBegin()
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
			pauses.Reset()
		}
		r.sleep(pauses.NextBackOff())
	}
}

// awaitVerdict waits a moment until core knows why the sandbox ends: an agent
// that goes down ends its commands, and cannot say what ended it.
func (e *Exec) awaitVerdict() {
	if e.run.execs.endingNow() != nil {
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
func (e *Exec) stream(start *guest.Start) error {
	st, err := e.run.Guest.Exec(e.ctx, e.uid, start, e.position())
	if err != nil {
		return err
	}
	defer telemetry.Close(e.run.s.cfg.Log, st)
	for {
		m, err := st.Next()
		switch {
		case errors.Is(err, io.EOF):
			return errs.E(errs.Unavailable, "the sandbox's agent closed the stream")
		case err != nil:
			return err
		case m.Started != nil:
			e.pid.Store(m.Started.PID)
			e.start(m.Started.At)
		case m.Output != nil:
			if err := e.take(*m.Output); err != nil {
				return err
			}
			if e.terminal != "" {
				e.run.Touch(e.ctx)
			}
		case m.Exit != nil:
			if end := e.position(); m.Exit.Offset > end {
				return errs.E(errs.Unavailable, "output is missing between %d and %d", end, m.Exit.Offset)
			}
			if endsWithSandbox(m.Exit.Reason) {
				e.awaitVerdict()
			}
			exit := e.run.explainOOM(m.Exit.Exit, e.Snapshot().StartedAt)
			if m.Exit.Outlived {
				exit = e.killRest(exit)
			}
			e.finish(exit, m.Exit.At)
			return nil
		}
	}
}

// start notes that the command runs since a time of the agent's clock.
func (e *Exec) start(at time.Time) {
	now := e.run.s.cfg.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.exec.Status != sandbox.ExecPending {
		return
	}
	e.exec.Status, e.exec.StartedAt = sandbox.ExecRunning, within(at, e.exec.CreatedAt, now)
	close(e.begun)
	e.secrets = nil
	e.timers.note = time.AfterFunc(noteStartAfter, func() {
		e.run.s.cfg.Gate.Spawn(e.noteStart)
	})
	if e.timers.backstop != nil { // of awaitBegin
		e.timers.backstop.Stop()
		e.timers.backstop = nil
	}
	e.arm()
}

// noteStart writes the start down, unless the end was faster.
func (e *Exec) noteStart(ctx context.Context) {
	e.stored.mu.Lock()
	defer e.stored.mu.Unlock()
	x := e.Snapshot()
	if x.Status != sandbox.ExecRunning || e.stored.noted {
		return
	}
	err := e.run.s.cfg.Store.StartExec(context.WithoutCancel(ctx), x.Box, x.Seq, x.StartedAt, event.Began(x))
	e.stored.noted = err == nil
	if err != nil && !errors.Is(err, errs.WrongState) {
		e.run.s.cfg.Log.Error("note the start of an exec; its end will do that",
			telemetry.KeyUID, x.Box, telemetry.KeySeq, x.Seq, telemetry.KeyErr, err)
	}
}

// take puts a piece of output into the journal. When the journal cannot be
// written the command is killed, and what comes still is dropped.
func (e *Exec) take(o sandbox.Output) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if o.Offset > e.intake.offset {
		return errs.E(errs.Unavailable, "output is missing between %d and %d", e.intake.offset, o.Offset)
	}
	if !e.intake.broken && !e.exec.Status.Finished() {
		if err := e.log.Append(o); err != nil {
			e.intake.broken = true
			e.verdict = &Ending{sandbox.EndDiskFull, "the host could not keep the command's output"}
			e.run.s.cfg.Log.Error("write a journal", telemetry.KeyUID, e.exec.Box, telemetry.KeySeq, e.seq, telemetry.KeyErr, err)
			e.run.s.cfg.Gate.Spawn(func(ctx context.Context) { e.kill(ctx, sandbox.EndKilled) })
		}
	}
	if end := o.Offset + int64(len(o.Data)); end > e.intake.offset {
		e.intake.offset = end
		select {
		case e.intake.acks <- struct{}{}:
		default:
		}
	}
	return nil
}

// acknowledge tells the agent what it need not keep any more, until stop.
func (e *Exec) acknowledge(stop <-chan struct{}) {
	r := e.run
	acked := e.position()
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-e.intake.acks:
		}
		if e.position()-acked < ackBytes {
			t.Reset(ackDelay)
		wait:
			for e.position()-acked < ackBytes {
				select {
				case <-stop:
					return
				case <-e.intake.acks:
				case <-t.C:
					break wait
				}
			}
		}
		offset := e.position()
		ctx, cancel := context.WithTimeout(r.ctx, gate.DetachedTime)
		err := r.Guest.Ack(ctx, e.uid, offset)
		cancel()
		if err == nil {
			acked = offset
		}
		// An ack that was lost is made up for by the next one, or by the
		// offset of the next attach.
	}
}

func (e *Exec) position() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.intake.offset
}

func (e *Exec) started() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.exec.Status != sandbox.ExecPending
}

// kill ends everything that descends from the command. A cell is interrupted,
// and its kernel killed when that has no effect.
func (e *Exec) kill(ctx context.Context, reason sandbox.EndReason) {
	if e.isCell() {
		e.helpCell()
	}
	logKill(ctx, e.run, e.seq, e.deliver(ctx, syscall.SIGKILL, true, reason))
}
