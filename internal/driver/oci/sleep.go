package oci

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/agent"
	"github.com/cubbyhq/cubby/internal/driver/oci/memory"
	"github.com/cubbyhq/cubby/internal/driver/oci/runtimes"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// sleepLimit bounds a sleep whose caller set no deadline of its own.
const sleepLimit = 5 * time.Minute

// CanSleep implements driver.Sleeper. A container shares the host's kernel, which
// has no memory of it to keep.
func (d *Driver) CanSleep(ctx context.Context, h driver.Handle) error {
	n, err := d.places.parse(h)
	if err != nil {
		return err
	}
	if n.Isolation != sandbox.GVisor {
		return errs.E(errs.Unsupported, "the memory of a container cannot be kept").Hint("stop it, or use isolation gvisor")
	}
	r, err := d.held(h)
	if err != nil {
		return nil //nolint:nilerr // who acts finds out that it does not run, or adopts it first
	}
	if n, err = d.box(n.UID).ofRun(n); err != nil {
		return err
	}
	return d.runtimes.Require(ctx, n.Runtime.asked(r.process.Program()), runtimes.Keep)
}

// asked is a program as the one at a path that is asked what it can do.
func (p program) asked(path string) runtimes.Program {
	return runtimes.Program{Path: path, Digest: p.Digest, Origin: p.Path}
}

// Sleep implements driver.Sleeper. gVisor's memory is written while the sandbox is
// paused and stays so: until the memory has its name it can go on, and from then
// on nothing of it runs any more.
func (d *Driver) Sleep(ctx context.Context, h driver.Handle) error {
	if err := d.CanSleep(ctx, h); err != nil {
		return err
	}
	n, err := d.places.parse(h)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sleepLimit)
	defer cancel()
	b := d.box(n.UID)
	status, err := d.Inspect(ctx, h)
	if err != nil {
		return err
	}
	if status.Phase == driver.PhaseAsleep {
		return d.clear(ctx, n.UID) // an earlier call may have been cut off
	}
	r, rec, err := d.toKeep(ctx, h, b, status.Phase)
	if err != nil {
		return err
	}
	root := b.halfSaved()
	s, err := d.standby(ctx, n, r, &rec, b.memory(), root, false)
	if err != nil {
		return err
	}
	if err := d.keep(ctx, n, r, s, root, rec.Secret); err != nil {
		if _, kept, keptErr := b.memory().Kept(); !kept && keptErr == nil {
			return errors.Join(err, d.goOn(ctx, n, r.process, rec), d.afterCheckpoint(ctx, b, r, rec))
		}
		// It has its name and may not have it after a crash of the host.
		d.log.Error("the memory of a sandbox is not known to be on the disk", "box", n.UID, "err", err)
	}
	d.sentries.want(n) // for its wake
	return d.clear(context.WithoutCancel(ctx), n.UID)
}

// toKeep takes hold of a run whose memory is going to be kept.
func (d *Driver) toKeep(ctx context.Context, h driver.Handle, b box, phase driver.Phase) (*run, record, error) {
	switch phase {
	case driver.PhaseRunning:
	case driver.PhaseGone:
		return nil, record{}, errs.E(errs.NotFound, "no such sandbox")
	case driver.PhaseCreated, driver.PhaseDead, driver.PhaseAsleep:
		return nil, record{}, errs.E(errs.WrongState, "sandbox is not running")
	}
	if err := d.Adopt(ctx, h); err != nil {
		return nil, record{}, err
	}
	r, err := d.held(h)
	if err != nil {
		return nil, record{}, err
	}
	if err := d.CanSleep(ctx, h); err != nil {
		return nil, record{}, err
	}
	// The memory, and a save of the root filesystem beside it.
	if err := d.fits(func() (int64, error) { return memory.Needs(r.process.PID) }, 1); err != nil {
		return nil, record{}, err
	}
	rec, _, err := b.record()
	return r, rec, err
}

// standby readies a suspension and marks the run that it is for. After an error
// nothing has happened.
func (d *Driver) standby(ctx context.Context, n note, r *run, rec *record, to memory.Memory, root string, hold bool) (*suspension, error) {
	s, err := d.suspend(ctx, n, r.process, to, root, hold)
	if err == nil {
		// That a wake is over may not have been noted.
		rec.Sleeping, rec.Paused, rec.Waking = true, true, false
		if err = d.box(n.UID).setRecord(*rec); err != nil {
			err = errors.Join(err, s.close())
		}
	}
	if err != nil {
		return nil, errors.Join(exhausted(err), to.Tidy(), os.RemoveAll(root))
	}
	return s, nil
}

// keep writes the memory of a run and leaves it paused. The root filesystem is for
// a cold start, which has no memory; the memory has its own. The files are on the
// disk before it is whole: it believes that they are.
func (d *Driver) keep(ctx context.Context, n note, r *run, s *suspension, root, secret string) error {
	b := d.box(n.UID)
	err := d.beforeCheckpoint(ctx, r)
	if err == nil {
		err = s.save()
	}
	of, noteErr := b.ofRun(n)
	note, shortErr := b.places.short(of)
	if err = errors.Join(err, noteErr, shortErr); err != nil {
		return exhausted(errors.Join(err, s.close()))
	}
	err = b.memory().Seal(memory.Content{Secret: secret, Note: note}, func() error {
		var onDisk errgroup.Group
		// What the runtime wrote is all there; that it ends well is wanted too. If it does
		// not, it says why, and a file that it removed then does not.
		var ended error
		onDisk.Go(func() error { ended = s.close(); return nil })
		onDisk.Go(n.sync)
		onDisk.Go(func() error { return memory.SyncTree(root) })
		synced := onDisk.Wait()
		if err := errors.Join(ended, synced); err != nil {
			return err
		}
		return memory.Exchange(root, b.saved())
	})
	// Seal may have failed before it came to that.
	return exhausted(errors.Join(err, s.close(), os.RemoveAll(root)))
}

// beforeCheckpoint readies the agent for the memory that it will be in: its time
// limits stand still, and nothing is under way with it.
func (d *Driver) beforeCheckpoint(ctx context.Context, r *run) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	err := agent.New(r.line().Dial, &r.agent).PauseTimers(ctx)
	return errors.Join(err, r.line().Sever())
}

// afterCheckpoint takes the agent of a run that goes on into use again.
func (d *Driver) afterCheckpoint(ctx context.Context, b box, r *run, rec record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startLimit)
	defer cancel()
	if r.ended() {
		return nil
	}
	if r.line().Closed() {
		l, err := d.listenAgain(b, rec)
		if err != nil {
			return err
		}
		r.setLine(l)
	}
	rec.Sleeping = false
	return d.resumeTimers(ctx, b, r, rec)
}

// takeUp does what is left of a sleep or a snapshot after which the run goes on, where
// that failed at first: the agent may be out of reach, and its time limits stand still.
func (d *Driver) takeUp(ctx context.Context, h driver.Handle) error {
	n, err := d.places.parse(h)
	if err != nil {
		return err
	}
	r, err := d.held(h)
	if err != nil {
		return err
	}
	b := d.box(n.UID)
	rec, found, err := b.record()
	if err != nil || !found || !rec.Paused || rec.Waking {
		return err
	}
	if rec.Sleeping {
		if err := d.goOn(ctx, n, r.process, rec); err != nil {
			return err
		}
	}
	return d.afterCheckpoint(ctx, b, r, rec)
}

// resumeTimers lets the time limits of an agent go on, and notes that they do.
func (d *Driver) resumeTimers(ctx context.Context, b box, r *run, rec record) error {
	if err := d.rouse(ctx, r); err != nil {
		return err
	}
	rec.Paused = false
	if err := b.setRecord(rec); err != nil {
		// What is written there only has this done once more.
		d.log.Warn("time limits that go on are still in the notes", "box", b.uid, "err", err)
	}
	return nil
}
