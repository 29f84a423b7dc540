package snapshot

import (
	"context"

	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// hold finds a sandbox and keeps others from acting on it until release.
func (s *Snapshots) hold(ctx context.Context, id string) (b sandbox.Sandbox, release func(), err error) {
	if b, release, err = s.cfg.Sandboxes.Hold(ctx, id); err != nil {
		return b, nil, err
	}
	if err := s.mayKeep(b); err != nil {
		release()
		return b, nil, err
	}
	return b, release, nil
}

// holdAwake is hold of a sandbox that runs, and whose memory k keeps. One that sleeps
// is woken before, as by every other use; not when it can be known that what is to
// come is refused, for which it is asked whether it may.
func (s *Snapshots) holdAwake(ctx context.Context, id string, may func(sandbox.Sandbox) error) (b sandbox.Sandbox, k driver.Snapshotter, release func(), err error) {
	if b, err = s.cfg.Scope.Find(ctx, id); err != nil {
		return b, nil, nil, err
	}
	if b.State == sandbox.Sleeping {
		if err := s.mayWake(b, may); err != nil {
			return b, nil, nil, err
		}
		if _, _, err := s.cfg.Sandboxes.EnsureRunning(ctx, id, lifecycle.UseAuto); err != nil {
			return b, nil, nil, err
		}
	}
	if b, release, err = s.hold(ctx, id); err != nil {
		return b, nil, nil, err
	}
	if k, err = s.keeper(b); err == nil && b.State != sandbox.Running {
		err = s.cfg.Scope.NotRunning(b)
	}
	if err != nil {
		release()
		return b, nil, nil, err
	}
	return b, k, release, nil
}

// mayWake refuses a sleeper of which it is known that its memory will not be kept.
func (s *Snapshots) mayWake(b sandbox.Sandbox, may func(sandbox.Sandbox) error) error {
	if err := s.mayKeep(b); err != nil {
		return err
	}
	if _, err := s.keeper(b); err != nil {
		return err
	}
	return may(b)
}

// mayKeep refuses a sandbox that cannot be kept alone, or has no files.
func (s *Snapshots) mayKeep(b sandbox.Sandbox) error {
	if b.FilesTenant() != "" {
		return errs.E(errs.SharedFiles, "the files of the sandbox are its tenant's, and others use them").
			Hint("only a sandbox that was created with shared_files: false can be kept, forked or rolled back")
	}
	if b.State == sandbox.Creating || !b.State.Live() {
		return s.cfg.Scope.NotRunning(b)
	}
	return nil
}

// keeper is the driver's ability to keep memory.
func (s *Snapshots) keeper(b sandbox.Sandbox) (driver.Snapshotter, error) {
	k, ok := driver.As[driver.Snapshotter](s.cfg.Driver)
	// A container's memory is the host kernel's, which no driver keeps.
	if !ok || b.Spec.Isolation == sandbox.Container {
		return nil, errs.E(errs.Unsupported, "the memory of a sandbox with the isolation %q cannot be kept", b.Spec.Isolation).
			Hint("make a snapshot of its files, with memory: false, and create sandboxes from that")
	}
	return k, driver.Serves(s.cfg.Driver, b.Driver)
}
