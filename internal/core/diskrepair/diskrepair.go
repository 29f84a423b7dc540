// Package diskrepair restarts the sandboxes of disks that cannot be written to any
// more, which repairs those. It decides which and when; how a sandbox is stopped and
// started it is told.
package diskrepair

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/repair"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/store"
)

// Reason is said of sandboxes whose disk is repaired.
const Reason = "its disk had become read-only because writing to the host's disk failed, and it was restarted to repair it: " +
	"its programs have ended, and its files are those that were on the host's disk"

// startTries bounds how often a sandbox is started whose disk is repaired: what used
// its file system may take a moment to let go.
const startTries = 5

// Acts are done to sandboxes whose lock is held. All are required.
type Acts struct {
	TryLock func(key string) (unlock func(), ok bool)
	Stop    func(ctx context.Context, b sandbox.Sandbox) (sandbox.Sandbox, error)
	Start   func(ctx context.Context, b sandbox.Sandbox) error
	Unmount func(ctx context.Context, b sandbox.Sandbox) error
	// Unowned hears that a disk belongs to a sandbox that has no row.
	Unowned func()
}

// Repairer repairs disks.
type Repairer struct {
	Store *store.Store
	Disks storage.Storage
	Log   *slog.Logger
	Acts  Acts

	pace repair.Pace
}

// Due returns the faults that are to be repaired now: none before the host has room,
// and each after a pause.
func (p *Repairer) Due(uptime time.Duration) (due []storage.Fault) {
	faults := p.Disks.Faults()
	if len(faults) == 0 || p.Disks.Admit() != nil {
		return nil
	}
	return slices.DeleteFunc(faults, func(f storage.Fault) bool { return !p.pace.Begin(f.Disk, uptime) })
}

// Repair ends all that uses a disk, by which it is unmounted, and starts what ran
// again, by which it is repaired and mounted. A sandbox does not keep its memory over
// that: its programs would go on with files that never reached the disk.
func (p *Repairer) Repair(ctx context.Context, f storage.Fault) error {
	boxes, unlock, err := p.lockUsers(ctx, f.Users)
	if err != nil {
		return err
	}
	defer unlock()
	var ran []sandbox.Sandbox
	for _, b := range boxes {
		if b.State == sandbox.Running {
			if b, err = p.Acts.Stop(ctx, b); err == nil {
				ran = append(ran, b)
			}
		} else {
			err = p.Acts.Unmount(ctx, b) // one that sleeps mounts it when it wakes
		}
		if err != nil {
			break
		}
	}
	failed := []error{err}
	for _, b := range ran {
		failed = append(failed, p.start(ctx, b))
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	p.Log.Info("a disk is repaired", "disk", string(f.Disk), "sandboxes", len(boxes))
	return nil
}

func (p *Repairer) start(ctx context.Context, b sandbox.Sandbox) (err error) {
	pauses := gate.NewPauses()
	for range startTries {
		if err = p.Acts.Start(ctx, b); !errors.Is(err, errs.Unavailable) {
			break
		}
		gate.Pause(ctx, pauses)
	}
	return err
}

// lockUsers reads the sandboxes that use a disk and holds their locks. It waits for
// none that another act has: two that lock several do not wait for each other.
func (p *Repairer) lockUsers(ctx context.Context, users []sandbox.UID) (boxes []sandbox.Sandbox, unlock func(), err error) {
	var held []func()
	unlock = func() {
		for _, release := range held {
			release()
		}
	}
	for _, uid := range users {
		b, err := p.Store.SandboxByUID(ctx, uid)
		if errors.Is(err, errs.NotFound) {
			p.Acts.Unowned()
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		boxes = append(boxes, b)
	}
	slices.SortFunc(boxes, func(a, b sandbox.Sandbox) int { return cmp.Compare(a.ID.Key(), b.ID.Key()) })
	for i, b := range boxes {
		release, free := p.Acts.TryLock(b.ID.Key())
		if !free {
			unlock()
			return nil, nil, errs.E(errs.Unavailable, "a sandbox that uses the disk is being changed").RetryAfter(time.Second)
		}
		held = append(held, release)
		if boxes[i], err = p.Store.SandboxByUID(ctx, b.UID); err != nil {
			unlock()
			return nil, nil, err
		}
	}
	return boxes, unlock, nil
}

// Conditions are what the disks of a running sandbox keep it from.
func Conditions(disks storage.Health, box sandbox.UID) []sandbox.Condition {
	err := disks.Writable(box)
	if err == nil {
		return nil
	}
	c := sandbox.Condition{Type: sandbox.ConditionDiskFailed}
	if errors.Is(err, errs.Exhausted) {
		c.Type = sandbox.ConditionDiskHeld
	}
	said := errs.Public(err)
	c.Reason = said.Message + ": " + said.Hint
	return []sandbox.Condition{c}
}

// Held is errs.Exhausted when a sandbox runs and what writes to its disks waits for
// room: such a process cannot be ended without losing what it writes.
func Held(disks storage.Health, b sandbox.Sandbox) error {
	if b.State != sandbox.Running {
		return nil
	}
	if err := disks.Writable(b.UID); errors.Is(err, errs.Exhausted) {
		return err
	}
	return nil
}
