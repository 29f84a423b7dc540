package live

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// EndExecs finishes what the store has of unfinished execs of a sandbox that
// does not run: those that no run has taken care of.
func (s *Sandboxes) EndExecs(ctx context.Context, box sandbox.UID, end Ending) error {
	for {
		more, err := s.endSome(ctx, box, end)
		if err == nil && !more {
			s.settled(box)
			s.changes.tell(box)
		}
		if err != nil || !more {
			return err
		}
	}
}

// endSome finishes a page of execs. Each page has its own time: thousands may
// have waited in a queue, and none of them is left without its end because
// there were many.
func (s *Sandboxes) endSome(ctx context.Context, box sandbox.UID, end Ending) (more bool, err error) {
	ctx, cancel := gate.Detached(ctx)
	defer cancel()
	list, err := s.unfinished(ctx, box, 0)
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
func (s *Sandboxes) endLost(ctx context.Context, x sandbox.Exec, end Ending) error {
	exit := end.exit()
	if x.Status == sandbox.ExecPending && errors.Is(s.cfg.Journals.Check(x.Box, x.Seq), errs.NotFound) {
		return s.endUnstarted(ctx, x, exit) // it waited for its turn
	}
	log, err := s.cfg.Journals.Create(x.Box, x.Seq)
	if err != nil {
		// Without its journal the exec still has to end.
		s.cfg.Log.Warn("open the journal of a lost exec", telemetry.KeyUID, x.Box, telemetry.KeySeq, x.Seq, telemetry.KeyErr, err)
	} else {
		defer telemetry.Close(s.cfg.Log, log)
		if known := log.Exit(); known != nil {
			exit = *known
		} else if err := log.Finish(exit); err != nil {
			s.cfg.Log.Warn("finish the journal of a lost exec", telemetry.KeyUID, x.Box, telemetry.KeySeq, x.Seq, telemetry.KeyErr, err)
		}
		exit = withCuts(exit, log)
	}
	x.Exit, x.Status, x.FinishedAt = &exit, endStatus(exit), s.cfg.Now()
	x.Result = s.cfg.Operations.resultOf(ctx, s.cfg.Log, x)
	return s.writeEnd(ctx, x, true)
}

// EndForgotten ends unfinished execs of sandboxes that neither run nor sleep, as
// a crash between the death of a sandbox and the end of its execs leaves them.
func (s *Sandboxes) EndForgotten(ctx context.Context) error {
	list, err := s.cfg.Store.UnfinishedExecs(ctx)
	if err != nil {
		return err
	}
	for _, x := range list {
		b, err := s.cfg.Store.SandboxByUID(ctx, x.Box)
		if err != nil && !errors.Is(err, errs.NotFound) {
			return err
		}
		end := Ending{sandbox.EndLost, "the sandbox is not known any more"}
		if err == nil {
			switch b.State {
			case sandbox.Running, sandbox.Sleeping, sandbox.Creating:
				continue
			case sandbox.Destroyed:
				end = Ending{sandbox.EndDestroyed, "the sandbox was destroyed"}
			default:
				end = EndOf(b.Why())
			}
		}
		if err := s.endLost(ctx, x, end); err != nil {
			return err
		}
		s.changes.tell(x.Box)
	}
	return nil
}
