package live

import (
	"context"
	"errors"
	"sync"
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
	// spareFor is how long the host goes by one answer of the agent. For longer
	// than that, doomedFor of internal/guestd/proc, the agent starts no process
	// that would have to be spared too.
	spareFor = 5 * time.Second
	// adoptedFor is how long after its adoption a sandbox may begin a kill that an
	// earlier daemon would have helped with, the end of a cell that it interrupted:
	// an agent that is starved is late.
	adoptedFor = 3 * interruptGrace
)

// killOthers has the host end what the agent could not, as long as what the agent
// said of whom to spare holds good. Without an error it is asked again.
func killOthers(ctx context.Context, killer driver.TreeKiller, h driver.Handle, spare []int64) error {
	good, cancel := context.WithTimeout(ctx, spareFor)
	defer cancel()
	err := killer.KillOthers(good, h, spare)
	if good.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// signal signals a command or, with tree, everything that descends from it. A
// kill of a tree is enforced by the host where the agent does not manage; when
// it returns nil, nothing of the tree is left.
func (r *Run) signal(ctx context.Context, uid sandbox.UID, sig syscall.Signal, tree bool, reason sandbox.EndReason) error {
	if !tree || sig != syscall.SIGKILL {
		return r.Guest.Signal(ctx, uid, sig, tree, reason)
	}
	killer, _ := driver.As[driver.TreeKiller](r.s.cfg.Driver)
	if killer == nil {
		return r.Guest.Signal(ctx, uid, sig, true, reason)
	}
	for round := range killRounds {
		spare, outlived, err := r.Guest.KillTree(ctx, uid, reason, killPatience)
		switch {
		case round > 0 && errors.Is(err, errs.NotFound):
			return nil // it ended between two rounds
		case err != nil || !outlived:
			return err
		}
		if err := killOthers(ctx, killer, r.Handle, spare); err != nil {
			return err
		}
		// A process that waits for its disk is not ended by a signal.
		if err := r.s.cfg.Disks.Writable(r.UID); errors.Is(err, errs.Exhausted) {
			return err
		}
	}
	return errs.E(errs.Unavailable, "some processes of the command do not end").
		Hint("stop the sandbox: that ends all of it")
}

// logKill logs that a command's processes could not be ended.
func logKill(ctx context.Context, r *Run, seq int64, err error) {
	if err != nil && !errors.Is(err, errs.NotFound) && ctx.Err() == nil {
		r.s.cfg.Log.Warn("kill an exec", telemetry.KeyUID, r.UID, telemetry.KeySeq, seq, telemetry.KeyErr, err)
	}
}

// helpKills ends what the agent is killing and cannot, until stop. It is for
// what the agent kills by itself, as kernels. Without stop it is for what an earlier
// daemon helped with, and ends when that is done.
func (r *Run) helpKills(ctx context.Context, stop <-chan struct{}) {
	killer, _ := driver.As[driver.TreeKiller](r.s.cfg.Driver)
	if killer == nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		defer cancel() // also what is under way
		select {
		case <-stop:
		case <-r.ctx.Done():
		case <-ctx.Done():
		}
	})
	defer watching.Wait()
	defer cancel()
	tick := time.NewTicker(killPatience)
	defer tick.Stop()
	for began := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		spare, outlived, err := r.Guest.Unkilled(ctx, killPatience)
		if err == nil && outlived {
			err = killOthers(ctx, killer, r.Handle, spare)
		} else if err == nil && stop == nil && time.Since(began) > adoptedFor {
			return
		}
		if errors.Is(err, errs.Unsupported) {
			return // the agent is older, or has no need of help
		}
		if err != nil && ctx.Err() == nil {
			r.s.cfg.Log.Debug("help the agent to kill", telemetry.KeyUID, r.UID, telemetry.KeyErr, err)
		}
	}
}

// helpCell is [Run.helpKills] for the end of a cell that is interrupted, or
// about to be: after its grace that is the end of its kernel.
func (e *Exec) helpCell() {
	e.mu.Lock()
	helped := e.timers.helped
	e.timers.helped = true
	e.mu.Unlock()
	if !helped {
		e.run.s.cfg.Gate.Spawn(func(ctx context.Context) { e.run.helpKills(ctx, e.done) })
	}
}

// HelpCells is that for those of a kernel that is interrupted.
func (r *Run) HelpCells(kernel string) {
	for _, e := range r.execs.all() {
		if e.isCell() && e.kernel == kernel {
			e.helpCell()
		}
	}
}

// WithHelp runs something that ends a kernel: what the agent cannot kill
// meanwhile, the host does.
func (r *Run) WithHelp(ctx context.Context, f func() error) error {
	done := make(chan struct{})
	var helping sync.WaitGroup
	helping.Go(func() { r.helpKills(ctx, done) })
	err := f()
	close(done)
	helping.Wait()
	return err
}

// killRest ends what a command left that was killed, before its end is told.
func (e *Exec) killRest(exit sandbox.Exit) sandbox.Exit {
	ctx, cancel := context.WithTimeout(e.ctx, reportSlack)
	defer cancel()
	err := e.run.signal(ctx, e.uid, syscall.SIGKILL, true, exit.Reason)
	if err != nil && !errors.Is(err, errs.NotFound) {
		e.run.s.cfg.Log.Warn("kill what an exec left", telemetry.KeyUID, e.run.UID, telemetry.KeySeq, e.seq, telemetry.KeyErr, err)
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
