package oci

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/agent"
	"github.com/cubbyhq/cubby/internal/driver/oci/memory"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// snapshotsDir is where snapshots are, each a memory in a directory of its name.
// It is no sandbox's, and outlives them all.
func (d *Driver) snapshotsDir() string { return filepath.Join(d.cfg.StateDir, "snapshots") }

func (d *Driver) snapshotDir(name sandbox.UID) string {
	return filepath.Join(d.snapshotsDir(), string(name))
}

func (d *Driver) snapshotOf(name sandbox.UID) memory.Memory {
	return memory.Of(d.snapshotDir(name), &d.kept)
}

// Snapshot implements driver.Snapshotter. The pause ends when the files are copied:
// what gVisor wrote does not change any more, and is put onto the disk and read
// back while the sandbox runs on.
func (d *Driver) Snapshot(ctx context.Context, h driver.Handle, name sandbox.UID, copyFiles func(context.Context) error) (s driver.Snapshot, err error) {
	n, err := d.places.parse(h)
	if err != nil {
		return s, err
	}
	if _, err := sandbox.ParseUID(string(name)); err != nil {
		return s, err
	}
	if n.Isolation != sandbox.GVisor {
		return s, errs.E(errs.Unsupported, "the memory of a container cannot be kept").Hint("keep its files alone, or use isolation gvisor")
	}
	ctx, cancel := context.WithTimeout(ctx, sleepLimit)
	defer cancel()
	status, err := d.Inspect(ctx, h)
	if err != nil {
		return s, err
	}
	kept := d.snapshotOf(name)
	if err := d.takeName(name); err != nil {
		return s, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.RemoveSnapshot(context.WithoutCancel(ctx), name))
		}
	}()
	r, rec, err := d.toKeep(ctx, h, d.box(n.UID), status.Phase)
	if err != nil {
		return s, err
	}
	// What is restored begins as a copy of this agent.
	if err := agent.New(r.line().Dial, &r.agent).CanCopy(ctx); err != nil {
		return s, err
	}
	suspended, err := d.standby(ctx, n, r, &rec, kept, kept.HalfRoot(), true)
	if err != nil {
		return s, err
	}
	if s.Paused, err = d.keepSnapshot(ctx, n, r, suspended, rec, copyFiles); err != nil {
		// What fills the disk goes first.
		err = errors.Join(exhausted(err), kept.Tidy(), d.goOn(ctx, n, r.process, rec))
	}
	if err := errors.Join(err, d.afterCheckpoint(ctx, d.box(n.UID), r, rec)); err != nil {
		return s, err
	}
	if r.ended() {
		return s, errs.E(errs.Unavailable, "the sandbox ended while its memory was kept")
	}
	if n, err = d.box(n.UID).ofRun(n); err != nil {
		return s, err
	}
	note, err := d.places.handle(n)
	if err != nil {
		return s, err
	}
	if err := kept.Seal(memory.Content{Secret: rec.Secret, Note: note}, func() error { return memory.SyncNames(d.snapshotsDir()) }); err != nil {
		return s, exhausted(err)
	}
	s.Bytes, _, err = kept.Kept()
	return s, err
}

// keepSnapshot writes half a snapshot while a run stands still. After an error the
// run may still do so.
func (d *Driver) keepSnapshot(ctx context.Context, n note, r *run, s *suspension, rec record, copyFiles func(context.Context) error) (paused time.Duration, err error) {
	err = d.beforeCheckpoint(ctx, r)
	began := time.Now()
	if err == nil {
		err = s.save()
	}
	if err == nil {
		err = n.sync()
	}
	if err == nil {
		err = copyFiles(ctx)
	}
	if err := errors.Join(err, s.close()); err != nil {
		return 0, err
	}
	paused = time.Since(began)
	rec.Sleeping = false
	return paused, d.box(n.UID).setRecord(rec)
}

// takeName makes the directory of a snapshot.
func (d *Driver) takeName(name sandbox.UID) error {
	if err := os.MkdirAll(d.snapshotsDir(), 0o700); err != nil {
		return exhausted(err)
	}
	err := os.Mkdir(d.snapshotDir(name), 0o700)
	if errors.Is(err, fs.ErrExist) {
		return errs.E(errs.Conflict, "snapshot exists already")
	}
	return exhausted(err)
}

// Restore implements driver.Snapshotter.
func (d *Driver) Restore(ctx context.Context, name sandbox.UID, spec driver.Spec) (h driver.Handle, err error) {
	if err := check(spec); err != nil {
		return nil, err
	}
	if _, err := sandbox.ParseUID(string(name)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	kept := d.snapshotOf(name)
	says, err := kept.Open()
	if err != nil {
		return nil, err
	}
	n, err := d.places.parse(says.Note)
	if err != nil {
		return nil, errs.E(errs.NotFound, "the snapshot cannot be read").Because(err)
	}
	if err := d.runtimes.Readable(ctx, n.Runtime.asked(kept.Program())); err != nil {
		return nil, err
	}
	if err := n.become(spec); err != nil {
		return nil, err
	}
	b := d.box(spec.UID)
	if err := os.Mkdir(b.dir, 0o700); errors.Is(err, fs.ErrExist) {
		return nil, errs.E(errs.Conflict, "sandbox exists already")
	} else if err != nil {
		return nil, err
	}
	defer func() {
		if err == nil {
			return
		}
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
		defer cancel()
		if undoErr := d.Sweep(undo, spec.UID); undoErr != nil {
			d.log.Error("a restore that failed was not undone", "box", spec.UID, "err", undoErr)
		}
	}()
	if err := d.furnishOld(&n); err != nil {
		return nil, err
	}
	if h, err = d.places.handle(n); err != nil {
		return nil, err
	}
	if err := b.setNote(n); err != nil {
		return nil, err
	}
	saved := make(chan error, 1)
	go func() { saved <- b.takeSaved(kept.Root()) }()
	// Its agent says what the parent's said, until Identify gives it another secret.
	err = d.begin(ctx, n, record{Secret: says.Secret, NextSecret: rand.Text(), HostID: d.hostID}, nil, &kept)
	if err := errors.Join(unreadable(err), <-saved); err != nil {
		return nil, err
	}
	return h, nil
}

// become makes the note of what was kept that of a sandbox to be restored.
func (n *note) become(spec driver.Spec) error {
	other := noteOf(spec)
	sameImage := n.Image != "" && n.Image == other.Image || n.Image == "" && n.Rootfs == other.Rootfs
	if n.Isolation != other.Isolation || n.Limits != other.Limits || !sameImage || len(n.Volumes) != len(other.Volumes) {
		return errs.E(errs.Invalid, "a restored sandbox has the isolation, limits, image and volumes of its snapshot")
	}
	n.Volumes = slices.Clone(n.Volumes)
	for i, v := range n.Volumes {
		// In their old order, in which gVisor finds its mounts again.
		at := slices.IndexFunc(other.Volumes, func(w volume) bool { return w.Role == v.Role && w.ReadOnly == v.ReadOnly })
		if at < 0 {
			return errs.E(errs.Invalid, "a restored sandbox has the volumes of its snapshot")
		}
		n.Volumes[i].Dir = other.Volumes[at].Dir
	}
	n.UID, n.Image, n.Rootfs = other.UID, other.Image, other.Rootfs
	if n.Authorities != "" && other.Authorities != "" {
		n.Authorities = other.Authorities
	}
	return nil
}

// takeSaved gives a sandbox an image of its root filesystem that is kept elsewhere,
// for when it begins cold.
func (b box) takeSaved(from string) error {
	return memory.PublishLinks(from, b.halfSaved(), b.saved())
}

// RemoveSnapshot implements driver.Snapshotter.
func (d *Driver) RemoveSnapshot(_ context.Context, name sandbox.UID) error {
	if _, err := sandbox.ParseUID(string(name)); err != nil {
		return err
	}
	// One that goes is none before the first of its files goes.
	return errors.Join(d.snapshotOf(name).Forget(), os.RemoveAll(d.snapshotDir(name)))
}

// Snapshots implements driver.Snapshotter.
func (d *Driver) Snapshots(context.Context) ([]sandbox.UID, error) { return d.snapshots() }

func (d *Driver) snapshots() (names []sandbox.UID, err error) {
	entries, err := os.ReadDir(d.snapshotsDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if name, err := sandbox.ParseUID(e.Name()); err == nil {
			names = append(names, name)
		}
	}
	return names, err
}
