package snapshot

import (
	"context"
	"fmt"
	"slices"

	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// Origin is a snapshot of a tenant's, by its id or name, to begin a sandbox of
// that tenant from. It stays until Done is called.
func (s *Snapshots) Origin(ctx context.Context, tenant, name string) (lifecycle.Origin, error) {
	if err := s.cfg.Gate.Wait(ctx); err != nil {
		return lifecycle.Origin{}, err
	}
	n, done, err := s.take(ctx, &tenant, name)
	if err != nil {
		return lifecycle.Origin{}, err
	}
	o, err := s.origin(ctx, n)
	if err != nil {
		done()
		return o, err
	}
	o.Done = done
	o.Files = func(ctx context.Context, disk sandbox.UID) error {
		_, err := s.cfg.Disks.Clone(ctx, storage.Source{UID: n.UID}, disk)
		return err
	}
	return o, nil
}

func (s *Snapshots) origin(ctx context.Context, n sandbox.Snapshot) (lifecycle.Origin, error) {
	o := lifecycle.Origin{Snapshot: n}
	if !n.Memory {
		return o, nil
	}
	k, err := s.keeper(sandbox.Sandbox{Spec: n.Spec, Driver: n.Driver})
	if err != nil {
		return o, err
	}
	kept, err := k.Snapshots(ctx)
	if err != nil {
		return o, err
	}
	if !slices.Contains(kept, n.UID) {
		return o, errs.E(errs.Unavailable, "the memory of the snapshot is gone from the host").Hint("remove the snapshot and make another")
	}
	o.Run = func(ctx context.Context, spec driver.Spec) (driver.Identified, error) {
		return s.restore(ctx, k, n.UID, spec)
	}
	return o, nil
}

// Rollback puts a sandbox back to what it was when a snapshot was made, under its
// own id: its files and, if the snapshot has it, its memory. What runs in it ends;
// its history goes on. With memory it runs afterwards, and one that rests is admitted
// like a start; with files alone one that slept is stopped as in place of a sleep.
// Kinds: NotFound, SharedFiles, Invalid (the sandbox is not what the snapshot is of),
// WrongState, Exhausted, LowMemory, OverQuota. When it is refused, or breaks off before
// anything was taken away, the sandbox is as before; later it is stopped, and its
// reason says to repeat the rollback.
func (s *Snapshots) Rollback(ctx context.Context, id, name string) (sandbox.Sandbox, error) {
	b, release, err := s.hold(ctx, id)
	if err != nil {
		return b, err
	}
	defer release()
	// Until the end: without it a rollback that has begun could not end.
	n, done, err := s.take(ctx, &b.Tenant, name)
	if err != nil {
		return b, err
	}
	defer done()
	if err := fits(b, n); err != nil {
		return b, err
	}
	o, err := s.origin(ctx, n)
	if err != nil {
		return b, err
	}
	return s.cfg.Sandboxes.Replace(ctx, b, lifecycle.Replacement{
		Origin: o, Runs: n.Memory || b.State == sandbox.Running,
		Prepare: func(ctx context.Context, disk sandbox.UID) (storage.Restoration, error) {
			return s.cfg.Disks.Prepare(ctx, disk, storage.Source{UID: n.UID})
		},
		Half: sandbox.Why{Cause: sandbox.CauseRollback, Reason: fmt.Sprintf("a rollback to the snapshot %q broke off: repeat it", n.Name)},
		End:  fmt.Sprintf("the sandbox was rolled back to the snapshot %q", n.Name),
		Done: event.Rollback{ID: n.UID, Name: n.Name, Memory: n.Memory},
	})
}

// fits refuses to make a sandbox what its limits, its image or its walls do not
// allow.
func fits(b sandbox.Sandbox, n sandbox.Snapshot) error {
	for _, f := range []struct {
		name string
		same bool
	}{
		{"isolation", b.Spec.Isolation == n.Spec.Isolation},
		{"image", b.ImageDigest == n.ImageDigest},
		{"limits", b.Spec.Limits == n.Spec.Limits},
	} {
		if !f.same {
			return errs.E(errs.Invalid, "snapshot: it is of a sandbox with another %s", f.name).Hint("create a sandbox from the snapshot")
		}
	}
	return nil
}
