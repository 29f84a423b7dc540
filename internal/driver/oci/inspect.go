package oci

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/channel"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/oci/pidfd"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Inspect implements driver.Driver.
func (d *Driver) Inspect(ctx context.Context, h driver.Handle) (driver.Status, error) {
	n, err := d.places.parse(h)
	if err != nil {
		return driver.Status{}, err
	}
	return d.status(n.UID, func() (note, error) { return n, nil })
}

// List implements driver.Driver.
func (d *Driver) List(ctx context.Context) ([]driver.Found, error) {
	before := d.sentries.boxes()
	uids, err := d.cgroups.List()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(d.cfg.StateDir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if uid, err := sandbox.ParseUID(e.Name()); err == nil {
			uids = append(uids, uid)
		}
	}
	after := d.sentries.boxes() // one may have come or gone meanwhile
	uids = slices.DeleteFunc(uids, func(uid sandbox.UID) bool { return before[uid] != nil || after[uid] != nil })
	slices.Sort(uids)
	var list []driver.Found
	for _, uid := range slices.Compact(uids) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f := driver.Found{UID: uid}
		f.Status, f.Err = d.status(uid, d.box(uid).note)
		list = append(list, f)
	}
	return list, nil
}

// note reads the copy of the sandbox's handle. One whose create was cut off has
// none, and never ran. All that is asked of it is how a run ended: where a crash of
// the host left a piece of it, less is known of that, and the rest is true.
func (b box) note() (note, error) {
	data, err := os.ReadFile(b.noteFile())
	if errors.Is(err, os.ErrNotExist) {
		return note{UID: b.uid}, nil
	}
	if err != nil {
		return note{}, err
	}
	n, err := b.places.parse(data)
	if errors.Is(err, errs.Invalid) {
		return note{UID: b.uid}, nil
	}
	return n, err
}

// status says what is true of a sandbox; its note tells how a run ended.
func (d *Driver) status(uid sandbox.UID, readNote func() (note, error)) (driver.Status, error) {
	b := d.box(uid)
	rec, found, err := b.record()
	if err != nil {
		return driver.Status{}, err
	}
	if size, kept, err := b.memory().Kept(); err != nil {
		return driver.Status{}, err
	} else if kept {
		// What comes out of it is there before it goes.
		if !found || !d.woken(b, rec) {
			return driver.Status{Phase: driver.PhaseAsleep, MemoryOnDisk: size}, nil
		}
	}
	if !found {
		_, err := os.Stat(b.dir)
		if errors.Is(err, os.ErrNotExist) {
			if d.cgroups.Group(uid).Exists() {
				return driver.Status{Phase: driver.PhaseDead, Death: driver.Death{Cause: driver.DeathRemoved}}, nil
			}
			return driver.Status{Phase: driver.PhaseGone}, nil
		}
		if err != nil {
			return driver.Status{}, err
		}
		return driver.Status{Phase: driver.PhaseCreated}, nil
	}
	rec = d.launched(b, rec)
	if rec.PID == 0 {
		return driver.Status{Phase: driver.PhaseCreated}, nil // its start goes on, or was interrupted
	}
	if rec.Stopping {
		// Whatever of it still runs: its agent takes no commands any more.
		return driver.Status{Phase: driver.PhaseCreated}, nil
	}
	p, err := d.open(uid, rec)
	if err == nil {
		p.Close()
		return driver.Status{Phase: driver.PhaseRunning}, nil
	}
	if !errors.Is(err, os.ErrProcessDone) {
		return driver.Status{}, err
	}
	n, err := readNote()
	if err != nil {
		return driver.Status{}, err
	}
	return driver.Status{Phase: driver.PhaseDead, Death: d.postMortem(n, rec)}, nil
}

// open holds the process of a recorded run; os.ErrProcessDone when it ended, or is
// none of the sandbox's: what is noted in a copy of a data directory runs in the
// cgroups of the original.
func (d *Driver) open(uid sandbox.UID, rec record) (*pidfd.Process, error) {
	if rec.HostID != d.hostID || rec.PID == 0 {
		return nil, os.ErrProcessDone
	}
	p, err := pidfd.Open(rec.PID, rec.StartTime)
	if err == nil && !d.cgroups.Group(uid).Contains(rec.PID) {
		p.Close()
		return nil, os.ErrProcessDone
	}
	return p, err
}

// Wait implements driver.Driver.
func (d *Driver) Wait(ctx context.Context, h driver.Handle) (driver.Death, error) {
	n, err := d.places.parse(h)
	if err != nil {
		return driver.Death{}, err
	}
	d.mu.Lock()
	r := d.runs[n.UID]
	d.mu.Unlock()
	if r != nil {
		select {
		case <-r.dead:
			return d.died(n, r), nil
		case <-ctx.Done():
			return driver.Death{}, ctx.Err()
		}
	}
	b := d.box(n.UID)
	rec, found, err := b.record()
	if err != nil || !found {
		return driver.Death{}, err
	}
	if asleep, err := d.asleep(b, rec); err != nil || asleep {
		return driver.Death{}, err
	}
	rec = d.launched(b, rec)
	p, err := d.open(n.UID, rec)
	if errors.Is(err, os.ErrProcessDone) {
		if rec.Stopping {
			return driver.Death{}, nil
		}
		return d.postMortem(n, rec), nil
	}
	if err != nil {
		return driver.Death{}, err
	}
	// Nobody adopted it: watch it for this call only.
	r = hold(p, nil)
	defer r.release()
	select {
	case <-r.dead:
		return d.died(n, r), nil
	case <-ctx.Done():
		return driver.Death{}, ctx.Err()
	}
}

// died says how a run that was watched ended, and writes it down.
func (d *Driver) died(n note, r *run) driver.Death {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping {
		return driver.Death{}
	}
	if r.death == nil {
		status, known := r.process.ExitStatus()
		death := d.cause(n, r.process.PID, status, known, "a kernel before Linux 6.15 does not always tell how it ended")
		r.death = &death
		b := d.box(n.UID)
		if rec, found, err := b.record(); err == nil && found && rec.PID == r.process.PID {
			rec.Death = &death
			if err := b.setRecord(rec); err != nil {
				d.log.Warn("a death was not written down", "box", n.UID, "err", err)
			}
		}
	}
	return *r.death
}

// postMortem says how a run ended that nobody watched.
func (d *Driver) postMortem(n note, rec record) driver.Death {
	if rec.Death != nil {
		return *rec.Death
	}
	if rec.HostID != d.hostID {
		return driver.Death{Cause: driver.DeathUnknown, Detail: "the host was restarted"}
	}
	return d.cause(n, rec.PID, 0, false, "it ended while nobody watched")
}

// cause tells a death from what is left of it; unknown says why nothing may be.
func (d *Driver) cause(n note, pid int, status syscall.WaitStatus, known bool, unknown string) driver.Death {
	killed := known && status.Signaled() && status.Signal() == syscall.SIGKILL
	if killed || !known {
		if d.outOfMemory(n, pid) {
			return driver.Death{Cause: driver.DeathOOM, Detail: "the kernel killed it for its memory limit"}
		}
		if !d.box(n.UID).known() {
			return driver.Death{Cause: driver.DeathRemoved, Detail: "the runtime has no note of it any more"}
		}
	}
	switch {
	case !known:
		return driver.Death{Cause: driver.DeathUnknown, Detail: unknown}
	case status.Signaled():
		return driver.Death{Cause: driver.DeathSignal, Signal: unix.SignalName(status.Signal())}
	default:
		return driver.Death{Cause: driver.DeathExit, Code: status.ExitStatus()}
	}
}

// outOfMemory reports whether a run ended because the kernel killed for the
// memory limit. In gVisor every kill is the end. In a container commands are
// killed and the sandbox goes on, so there the kernel's log has to name the
// run's own process; where the log does not reach that far, the counter
// decides.
func (d *Driver) outOfMemory(n note, pid int) bool {
	c := d.cgroups.Group(n.UID)
	count, err := c.OOMKills()
	if err != nil || count == 0 {
		return false
	}
	if n.Isolation == sandbox.GVisor {
		return true
	}
	kills, err := readKills(c)
	if err != nil {
		d.log.Debug("the kernel's log cannot be read", "err", err)
	}
	return int64(len(kills)) < count || slices.ContainsFunc(kills, func(k driver.OOMKill) bool { return k.PID == pid })
}

// known reports whether the runtime still has its own note of the run.
func (b box) known() bool {
	entries, err := os.ReadDir(b.runtime())
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	id := b.runtimeID()
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.Contains(e.Name(), id) })
}

// runID is the name that a runtime gives a run of gVisor, and files of its own in
// directories that all have in common. So it is another one for the same sandbox in
// another data directory.
func (b box) runID() string {
	sum := sha256.Sum256([]byte(b.dir))
	return fmt.Sprintf("%s-%x", b.uid, sum[:4])
}

// runtimeID is the runtime's name of the run that there is: its own, or that of the
// sentry that it became of.
func (b box) runtimeID() string {
	notes, _ := os.ReadDir(b.runtime())
	for _, note := range notes {
		if id, rest, ok := strings.Cut(note.Name(), "_sandbox:"); ok && strings.HasSuffix(rest, ".state") {
			return id
		}
	}
	return string(b.uid)
}

// Adopt implements driver.Driver.
func (d *Driver) Adopt(ctx context.Context, h driver.Handle) error {
	if err := d.adopt(ctx, h); err != nil {
		return err
	}
	return d.takeUp(ctx, h)
}

// adopt is Adopt for a run that is going to be stopped, of which no more is wanted.
func (d *Driver) adopt(ctx context.Context, h driver.Handle) error {
	n, err := d.places.parse(h)
	if err != nil {
		return err
	}
	d.mu.Lock()
	r := d.runs[n.UID]
	d.mu.Unlock()
	if r != nil && !r.ended() {
		return nil
	}
	b := d.box(n.UID)
	rec, found, err := b.record()
	if err != nil {
		return err
	}
	if !found {
		if _, err := os.Stat(b.dir); errors.Is(err, os.ErrNotExist) {
			return errs.E(errs.NotFound, "no such sandbox")
		}
	}
	if !found || r != nil {
		return errs.E(errs.WrongState, "sandbox is not running")
	}
	if asleep, err := d.asleep(b, rec); err != nil {
		return err
	} else if asleep {
		return errs.E(errs.WrongState, "sandbox is asleep").Hint("wake it")
	}
	rec = d.launched(b, rec)
	p, err := d.open(n.UID, rec)
	if errors.Is(err, os.ErrProcessDone) {
		return errs.E(errs.WrongState, "sandbox is not running")
	}
	if err != nil {
		return err
	}
	if rec.Sleeping {
		if err := d.goOn(ctx, n, p, rec); err != nil {
			p.Close()
			return err
		}
	}
	// What the earlier daemon began, or had no time to remove after a wake.
	err = b.tidy()
	var l *channel.Listener
	if err == nil {
		l, err = d.listenAgain(b, rec)
	}
	if err != nil {
		p.Close()
		return err
	}
	if base := cmp.Or(rec.IDBase, n.IDBase); base > 0 && !d.namespaces.Adopt(n.UID, base) {
		d.log.Warn("another sandbox has the same user ids of the host: start this one again to give it others", "box", n.UID)
	}
	if n.Isolation == sandbox.Container {
		// The earlier daemon may have been killed while it was 0.
		if err := d.cgroups.Group(n.UID).LimitTasks(n.Limits.PIDs); err != nil {
			d.log.Warn("the limit of processes was not restored", "box", n.UID, "err", err)
		}
	}
	r = hold(p, l)
	d.mu.Lock()
	d.runs[n.UID] = r
	d.mu.Unlock()
	d.guardLocks(n, p.PID)
	if rec.Waking {
		if err := b.setRecord(rec); err != nil { // its process may not be in it
			return err
		}
		return d.awake(ctx, n, r)
	}
	return nil
}

// Stats implements driver.Driver.
func (d *Driver) Stats(ctx context.Context, h driver.Handle) (driver.Stats, error) {
	n, err := d.places.parse(h)
	if err != nil {
		return driver.Stats{}, err
	}
	s, err := d.cgroups.Group(n.UID).Stats()
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return driver.Stats{}, errs.E(errs.WrongState, "sandbox is not running")
	}
	if n.Isolation == "gvisor" {
		s.PIDs = -1
	}
	return s, err
}
