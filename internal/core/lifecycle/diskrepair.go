package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// repairReason is said of sandboxes whose disk is repaired.
const repairReason = "its disk had become read-only because writing to the host's disk failed, and it was restarted to repair it: " +
	"its programs have ended, and its files are those that were on the host's disk"

// restartTries bounds how often a sandbox is started whose disk is repaired: what
// used its file system may take a moment to let go.
const restartTries = 5

// conditions are what keeps a running sandbox from working as it should.
func (s *acts) conditions(box sandbox.UID) []sandbox.Condition {
	err := s.cfg.Disks.Writable(box)
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

// held is errs.Exhausted when a sandbox runs and what writes to its disks waits for
// room: such a process cannot be ended without losing what it writes.
func (s *acts) held(b sandbox.Sandbox) error {
	if b.State != sandbox.Running {
		return nil
	}
	if err := s.cfg.Disks.Writable(b.UID); errors.Is(err, errs.Exhausted) {
		return err
	}
	return nil
}

// repairDisks has the disks repaired that cannot be written to any more, as soon as
// the host has room.
func (s *reaper) repairDisks(start starter) {
	faults := s.cfg.Disks.Faults()
	if len(faults) == 0 || s.cfg.Disks.Admit() != nil {
		return
	}
	for _, f := range faults {
		if s.repairs.Begin(f.Disk, s.cfg.Uptime()) {
			start(f.Disk, "its disk cannot be written to", func(ctx context.Context) error { return s.repairDisk(ctx, f) })
		}
	}
}

// repairDisk ends all that uses a disk, by which it is unmounted, and starts what ran
// again, by which it is repaired and mounted. A sandbox does not keep its memory over
// that: its programs would go on with files that never reached the disk.
func (s *reaper) repairDisk(ctx context.Context, f storage.Fault) error {
	boxes, unlock, err := s.lockUsers(ctx, f.Users)
	if err != nil {
		return err
	}
	defer unlock()
	var ran []sandbox.Sandbox
	for _, b := range boxes {
		switch b.State {
		case sandbox.Running:
			if r := s.cfg.Live.Of(b.UID); r != nil {
				r.End(live.Ending{Reason: sandbox.EndStopped, Message: repairReason})
			}
			why := sandbox.Why{Cause: sandbox.CauseDisk, Reason: repairReason}
			stopped, err := s.halt(ctx, b, DefaultGrace, why)
			if err != nil {
				return err
			}
			ran = append(ran, stopped)
		default:
			// One that sleeps mounts it when it wakes.
			if err := s.unmount(ctx, b); err != nil {
				return err
			}
		}
	}
	var failed []error
	for _, b := range ran {
		if err := s.restart(ctx, b); err != nil {
			failed = append(failed, err)
		}
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	for _, b := range boxes {
		s.cfg.Recorder.Note(ctx, event.New(b.UID, "", event.DiskRepair{Shared: f.Shared}))
	}
	s.cfg.Log.Info("a disk is repaired", "disk", string(f.Disk), "sandboxes", len(boxes))
	return nil
}

func (s *reaper) restart(ctx context.Context, b sandbox.Sandbox) (err error) {
	pauses := gate.NewPauses()
	for range restartTries {
		if _, err = s.rouse(ctx, b); err == nil || !errors.Is(err, errs.Unavailable) {
			break
		}
		gate.Pause(ctx, pauses)
	}
	return err
}

// lockUsers reads the sandboxes that use a disk and holds their locks. Those that are
// kept ready and belong to nobody are given up.
func (s *reaper) lockUsers(ctx context.Context, users []sandbox.UID) (boxes []sandbox.Sandbox, unlock func(), err error) {
	var held []func()
	unlock = func() {
		for _, release := range held {
			release()
		}
	}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	for _, uid := range users {
		b, err := s.cfg.Store.SandboxByUID(ctx, uid)
		if errors.Is(err, errs.NotFound) {
			s.pool.GiveUp(math.MaxInt)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		boxes = append(boxes, b)
	}
	// In one order, and none waits for one that another act has: two repairs, or a
	// repair and an act on several, do not wait for each other.
	slices.SortFunc(boxes, func(a, b sandbox.Sandbox) int { return cmp.Compare(a.ID.Key(), b.ID.Key()) })
	for i, b := range boxes {
		release, free := s.ids.TryLock(b.ID.Key())
		if !free {
			return nil, nil, errs.E(errs.Unavailable, "a sandbox that uses the disk is being changed").RetryAfter(time.Second)
		}
		held = append(held, release)
		if boxes[i], err = s.cfg.Store.SandboxByUID(ctx, b.UID); err != nil {
			return nil, nil, err
		}
	}
	return boxes, unlock, nil
}
