package core

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// died is called by a run's watcher when the sandbox does not run any more.
// When somebody stopped or destroyed it they hold its lock, and by the time
// they let go there is nothing left to do.
func (s *Service) died(r *run, death driver.Death) {
	b, err := s.cfg.Store.SandboxByUID(r.ctx, r.uid)
	if err != nil {
		if r.ctx.Err() == nil {
			s.log.Error("read a sandbox that died", telemetry.KeyUID, r.uid, telemetry.KeyErr, err)
			s.reconcileSoon()
		}
		return
	}
	unlock, err := s.ids.Lock(r.ctx, b.ID.Key())
	if err != nil {
		return
	}
	defer unlock()
	if s.runOf(r.uid) != r {
		return
	}
	ctx, cancel := gate.Detached(r.ctx)
	defer cancel()
	if err := s.bury(ctx, b, death); err != nil {
		s.log.Error("note the death of a sandbox", telemetry.KeyUID, r.uid, telemetry.KeyErr, err)
		s.reconcileSoon()
	}
}

// bury writes a death down: its execs end with the reason, the sandbox is
// stopped and does not count any more. Its lock is held.
func (s *Service) bury(ctx context.Context, b sandbox.Sandbox, death driver.Death) error {
	why := deathOf(death, b.Spec)
	s.log.Warn("a sandbox died", telemetry.KeySandbox, b.ID, telemetry.KeyUID, b.UID, "cause", death.Cause,
		"signal", death.Signal, "code", death.Code, "detail", death.Detail)
	end := endOf(why)
	if r := s.runOf(b.UID); r != nil {
		r.end(end)
		r.finish()
	}
	if err := s.endExecs(ctx, b, end); err != nil {
		return err
	}
	if _, err := s.stopped(ctx, b, why, event.Died{Reason: why.Reason}); err != nil {
		return err
	}
	if err := s.letGo(ctx, b); err != nil {
		s.log.Warn("clean up after a sandbox that died", telemetry.KeyUID, b.UID, telemetry.KeyErr, err)
	}
	return nil
}

// letGo has the driver drop what it holds of a run that is over, also of one
// whose start or stop a crash cut off.
func (s *Service) letGo(ctx context.Context, b sandbox.Sandbox) error {
	if b.Handle == nil {
		return nil
	}
	if err := s.cfg.Driver.Stop(ctx, b.Handle, 0); err != nil && !errors.Is(err, errs.NotFound) {
		return fmt.Errorf("clear what a run left: %w", err)
	}
	return nil
}

// died begins the reason of every sandbox that died.
const died = "CONTAINER_DIED: "

// deathOf says why a sandbox died, and people what they can do.
func deathOf(d driver.Death, spec sandbox.Spec) sandbox.Why {
	const files = "; its files are kept: start it again"
	var what string
	switch d.Cause {
	case driver.DeathOOM:
		return sandbox.Why{Cause: sandbox.CauseOOM, Reason: fmt.Sprintf(died+"OOM-killed: out of memory: the host killed the sandbox at its limit of %d MiB%s, or create one with more limits.memory_bytes",
			spec.Limits.MemoryBytes>>20, files)}
	case driver.DeathSignal:
		what = "it was killed by " + d.Signal
	case driver.DeathExit:
		what = fmt.Sprintf("its init process exited with code %d", d.Code)
	case driver.DeathRemoved:
		what = "it was removed from the host behind cubby's back"
	case driver.DeathNone:
		what = "it was stopped behind cubby's back"
	default:
		what = "nobody knows why; the host may have been restarted"
	}
	return sandbox.Why{Cause: sandbox.CauseDied, Reason: died + what + files}
}

// endExecs finishes what the store has of unfinished execs of a sandbox that
// does not run: those that no run has taken care of.
func (s *Service) endExecs(ctx context.Context, b sandbox.Sandbox, end ending) error {
	for {
		more, err := s.endSome(ctx, b, end)
		if err != nil || !more {
			return err
		}
	}
}

// endSome finishes a page of execs. Each page has its own time: thousands may
// have waited in a queue, and none of them is left without its end because
// there were many.
func (s *Service) endSome(ctx context.Context, b sandbox.Sandbox, end ending) (more bool, err error) {
	ctx, cancel := gate.Detached(ctx)
	defer cancel()
	list, err := s.unfinished(ctx, b.UID, 0)
	if err != nil || len(list) == 0 {
		return false, err
	}
	// Several at a time, for the store writes them together.
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(endAtOnce)
	for _, x := range list {
		g.Go(func() error { return s.endLost(ctx, x, end) })
	}
	return true, g.Wait()
}

// endAtOnce is how many lost execs are finished at a time.
const endAtOnce = 16

// endLost finishes an exec that nobody runs. When its journal knows the end
// already, that is the truth.
func (s *Service) endLost(ctx context.Context, x sandbox.Exec, end ending) error {
	exit := sandbox.Exit{Reason: end.reason, Message: end.message}
	if x.Status == sandbox.ExecPending && errors.Is(s.cfg.Journals.Check(x.Box, x.Seq), errs.NotFound) {
		return s.endUnstarted(ctx, x, exit) // it waited for its turn
	}
	log, err := s.cfg.Journals.Create(x.Box, x.Seq)
	if err != nil {
		// Without its journal the exec still has to end.
		s.log.Warn("open the journal of a lost exec", telemetry.KeyUID, x.Box, telemetry.KeySeq, x.Seq, telemetry.KeyErr, err)
	} else {
		defer telemetry.Close(s.log, log)
		if known := log.Exit(); known != nil {
			exit = *known
		} else if err := log.Finish(exit); err != nil {
			s.log.Warn("finish the journal of a lost exec", telemetry.KeyUID, x.Box, telemetry.KeySeq, x.Seq, telemetry.KeyErr, err)
		}
		exit = withCuts(exit, log)
	}
	x.Exit, x.Status, x.FinishedAt = &exit, endStatus(exit), s.now()
	x.Result = s.resultOf(ctx, x)
	return s.writeEnd(ctx, x, true)
}
