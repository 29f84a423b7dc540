package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// restoration is a copy in a directory of unfinished ones, also while it is being
// made.
type restoration struct {
	disks *Disks
	uid   sandbox.UID
	// before is the size that the disk had, bytes what it gets, and grown what was
	// promised for the difference.
	before, bytes, grown int64
	restored             bool

	made   chan struct{} // closed when the copy is made, or failed
	dir    string        // set before that, "" when it failed
	failed error         // why
}

// Prepare implements storage.Storage. Of a source that nobody changes the copy is
// made while the caller goes on.
func (d *Disks) Prepare(ctx context.Context, uid sandbox.UID, from storage.Source) (storage.Restoration, error) {
	unlockSource, unlock, err := d.lockEach(from.UID, uid)
	if err != nil {
		return nil, err
	}
	defer unlock()
	r := &restoration{disks: d, uid: uid, made: make(chan struct{})}
	source, err := r.check(from)
	if err != nil {
		unlockSource()
		return nil, err
	}
	copies := func(hold func(func() error) error) {
		defer close(r.made)
		defer unlockSource()
		r.dir, r.failed = d.copyUnsynced(ctx, source, hold)
	}
	if isStill(from, source) {
		go copies(unheld)
		return r, nil
	}
	copies(func(copies func() error) error { _, err := d.still(ctx, from.UID, copies); return err })
	if r.failed != nil {
		r.Discard()
		return nil, r.failed
	}
	return r, nil
}

// check refuses what cannot be, and promises what the disk grows by.
func (r *restoration) check(from storage.Source) (source string, err error) {
	d := r.disks
	if from.Snapshot == "" && from.UID == r.uid {
		return "", errs.E(errs.Invalid, "a disk cannot be restored to itself")
	}
	if err := d.exists(r.uid); err != nil {
		return "", err
	}
	bytes, need, source, err := d.source(from)
	if err != nil {
		return "", err
	}
	if isPlain(source) != isPlain(d.dir(r.uid)) {
		return "", errs.E(errs.Unsupported, "one of the disks has a hard size and the other has none").
			Hint("they were made while the host could do different things; make a new sandbox from the snapshot")
	}
	if err := d.admitCopy(need); err != nil {
		return "", err
	}
	r.before, r.bytes = d.bytes(r.uid), bytes
	r.grown = max(0, bytes-r.before)
	return source, d.promise(r.grown)
}

// Restore implements storage.Restoration.
func (r *restoration) Restore(ctx context.Context) error {
	d := r.disks
	unlock := d.locks.Wait(string(r.uid))
	defer unlock()
	if err := d.exists(r.uid); err != nil {
		return err
	}
	if d.uses.inUse(r.uid) {
		return errs.E(errs.Conflict, "the disk is in use").Hint("stop the sandbox first")
	}
	if err := d.takeDown(r.uid); err != nil {
		return err
	}
	if err := d.wantReleased(ctx, r.uid); err != nil {
		return err
	}
	if <-r.made; r.failed != nil {
		return r.failed
	}
	if err := copyFailed(ctx, syncCopy(r.dir)); err != nil {
		return err
	}
	if err := d.putInPlace(r.dir, r.uid); err != nil {
		return err
	}
	r.restored = true
	d.unpromise(max(0, r.before-r.bytes))
	return syncDir(d.dir(r.uid))
}

// Discard implements storage.Restoration. Of a copy that a disk was given it
// removes what the disk had before.
func (r *restoration) Discard() {
	<-r.made
	if !r.restored {
		r.disks.unpromise(r.grown)
	}
	if r.dir != "" {
		r.disks.discard(r.dir)
	}
}

// putInPlace gives a disk the content of an unfinished one, which has nothing or
// what the disk had before afterwards.
func (d *Disks) putInPlace(dir string, uid sandbox.UID) error {
	if !isPlain(dir) {
		if err := os.Rename(filepath.Join(dir, imageName), d.image(uid)); err != nil {
			return fmt.Errorf("restore a disk: %w", err)
		}
		return nil
	}
	exchange := func() error {
		return unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, mountName), unix.AT_FDCWD, d.mnt(uid), unix.RENAME_EXCHANGE)
	}
	err := exchange()
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return errs.E(errs.Unsupported, "the host's file system cannot put a directory in the place of another in one step").
			Hint("keep the data directory on ext4, XFS or btrfs").Because(err)
	case err != nil:
		return fmt.Errorf("restore a disk: %w", err)
	}
	// The size of a plain directory bounds nothing: after a crash in between it
	// may be that of before.
	if err := os.Rename(filepath.Join(dir, plainName), filepath.Join(d.dir(uid), plainName)); err != nil {
		return errors.Join(fmt.Errorf("restore a disk: %w", err), exchange())
	}
	return nil
}
