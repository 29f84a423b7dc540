package oci

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/oci/pidfd"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Wake implements driver.Sleeper.
func (d *Driver) Wake(ctx context.Context, h driver.Handle) (err error) {
	n, err := d.places.parse(h)
	if err != nil {
		return err
	}
	if n.Isolation != sandbox.GVisor {
		return errs.E(errs.Unsupported, "the memory of a container cannot be kept")
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	status, err := d.Inspect(ctx, h)
	if err != nil {
		return err
	}
	switch status.Phase {
	case driver.PhaseAsleep:
	case driver.PhaseRunning:
		if err := d.Adopt(ctx, h); err != nil {
			return err
		}
		r, err := d.held(h)
		if err != nil {
			return err
		}
		return d.greet(ctx, r)
	case driver.PhaseGone:
		return errs.E(errs.NotFound, "no such sandbox")
	case driver.PhaseCreated, driver.PhaseDead:
		return errs.E(errs.WrongState, "sandbox is not asleep").Hint("start it")
	}
	if err := d.clear(ctx, n.UID); err != nil {
		return err
	}
	b := d.box(n.UID)
	kept := b.memory()
	says, err := kept.Open()
	if err != nil {
		return err
	}
	if err := d.places.takePrograms(&n, says.Note); err != nil {
		return errs.E(errs.NotFound, "the sandbox's memory is damaged").Because(err)
	}
	if err := d.runtimes.Readable(ctx, n.Runtime.asked(kept.Program())); err != nil {
		return err
	}
	if err := d.furnishOld(&n); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			d.undoRun(ctx, n.UID)
		}
	}()
	if err := d.begin(ctx, n, record{Secret: says.Secret, HostID: d.hostID, Waking: true}, nil, &kept); err != nil {
		return unreadable(err)
	}
	r, err := d.held(h)
	if err != nil {
		return err
	}
	return d.used(b, r)
}

// furnishOld is furnish for what comes out of a memory: the agent's program is
// mapped in it, and no other will do.
func (d *Driver) furnishOld(n *note) error {
	agent := n.Init
	if err := d.furnish(n, false); err != nil {
		return err
	}
	if n.Init != agent {
		return errs.E(errs.NotFound, "the program of the sandbox's agent is gone, and its memory needs it")
	}
	return nil
}

// unreadable classifies what gVisor says of a memory that no further try can read
// either: it was kept on another machine, or files that it has open, or the directory
// that a program of it is in, are gone from a disk that others write to.
func unreadable(err error) error {
	switch {
	case err == nil:
	case strings.Contains(err.Error(), "incompatible FeatureSet"):
		return errs.E(errs.NotFound, "this host's processor cannot go on with the sandbox's memory").Because(err)
	case goneFile.MatchString(err.Error()):
		return errs.E(errs.NotFound, "files that the sandbox's memory needs were removed from its disk meanwhile").Because(err)
	}
	return err
}

// goneFile is what gVisor says when it does not find what was open; see restoreFile
// of pkg/sentry/fsimpl/gofer.
var goneFile = regexp.MustCompile(`failed to walk ".*" of type 0?[0-7]+ in mount ".*": (no such file or directory|not a directory)`)

// used notes that a run has come out of the memory, which is none from then on: after
// that there is no error any more, for nothing but the run has what was in it.
func (d *Driver) used(b box, r *run) error {
	if err := b.memory().Retire(); err != nil {
		return err
	}
	r.leave(func() {
		if err := b.memory().Discard(); err != nil {
			d.log.Warn("a memory that was used is still there in part", "box", b.uid, "err", err)
		}
	})
	rec, found, err := b.record()
	if err == nil && found {
		rec.Waking, rec.Paused = false, false
		err = b.setRecord(rec)
	}
	if err != nil {
		// What is written there only has this done once more.
		d.log.Warn("a wake that is over is still in the notes", "box", b.uid, "err", err)
	}
	return nil
}

// awake ends a wake that another daemon began: what came out of the memory has
// run for a while, so it goes on if its agent answers, and else is asleep.
func (d *Driver) awake(ctx context.Context, n note, r *run) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	err := d.rouse(ctx, r)
	if err == nil {
		err = d.used(d.box(n.UID), r)
	}
	if err == nil {
		return nil
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	if clearErr := d.clear(undo, n.UID); clearErr != nil {
		return errors.Join(err, clearErr)
	}
	return errs.E(errs.WrongState, "sandbox is asleep").Hint("wake it").Because(err)
}

// asleep reports whether there is a memory, of which nothing has come yet.
func (d *Driver) asleep(b box, rec record) (bool, error) {
	_, kept, err := b.memory().Kept()
	return err == nil && kept && !d.woken(b, rec), err
}

// woken reports whether a recorded run has come out of the memory, and lives.
func (d *Driver) woken(b box, rec record) bool {
	if !rec.Waking {
		return false
	}
	p, err := d.open(b.uid, d.launched(b, rec))
	if err != nil {
		return false
	}
	p.Close()
	return true
}

// launched completes the record of a wake that was cut off before the runtime had
// said which process it started.
func (d *Driver) launched(b box, rec record) record {
	if !rec.Waking || rec.PID != 0 || rec.HostID != d.hostID {
		return rec
	}
	data, err := os.ReadFile(b.pidFile())
	if err != nil {
		return rec
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || pid <= 1 || !d.cgroups.Group(b.uid).Contains(pid) {
		return rec
	}
	p, err := pidfd.Open(pid, 0)
	if err != nil {
		return rec
	}
	defer p.Close()
	rec.PID, rec.StartTime = p.PID, p.Start
	return rec
}
