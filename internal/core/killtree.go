package core

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

const (
	// killPatience is how long an agent tries to kill a command's processes
	// before the host does.
	killPatience = time.Second
	// killRounds bounds how often the host is asked: what it ends stays ended.
	killRounds = 5
)

// signal signals a command or, with tree, everything that descends from it. A
// kill of a tree is enforced by the host where the agent does not manage; when
// it returns nil, nothing of the tree is left.
func (r *run) signal(ctx context.Context, uid sandbox.UID, sig syscall.Signal, tree bool, reason sandbox.EndReason) error {
	if !tree || sig != syscall.SIGKILL {
		return r.guest.Signal(ctx, uid, sig, tree, reason)
	}
	killer, _ := r.s.cfg.Driver.(driver.TreeKiller)
	if killer == nil {
		return r.guest.Signal(ctx, uid, sig, true, reason)
	}
	for round := range killRounds {
		spare, outlived, err := r.guest.KillTree(ctx, uid, reason, killPatience)
		switch {
		case round > 0 && errors.Is(err, errs.NotFound):
			return nil // it ended between two rounds
		case err != nil || !outlived:
			return err
		}
		if err := killer.KillOthers(ctx, r.handle, spare); err != nil {
			return err
		}
	}
	return errs.E(errs.Unavailable, "some processes of the command do not end").
		Hint("stop the sandbox: that ends all of it")
}

// killRest ends what a command left that was killed, before its end is told.
func (e *liveExec) killRest(exit sandbox.Exit) sandbox.Exit {
	ctx, cancel := context.WithTimeout(e.ctx, reportSlack)
	defer cancel()
	err := e.run.signal(ctx, e.uid, syscall.SIGKILL, true, exit.Reason)
	if err != nil && !errors.Is(err, errs.NotFound) {
		e.run.s.log.Warn("kill what an exec left", telemetry.KeyUID, e.run.uid, telemetry.KeySeq, e.seq, telemetry.KeyErr, err)
		exit.Message = joinMessages(exit.Message, "some of its processes live on: stop the sandbox to end them")
	}
	return exit
}

func joinMessages(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}
