package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// restoration is a copy in a directory of unfinished ones. It is brought to the host's
// disk while whoever wants it ends what uses the disk, and is not put in place before.
type restoration struct {
	disks *Disks
	uid   sandbox.UID
	dir   string
	// onDisk waits until the copy is on the host's disk; nil as long as there is none.
	onDisk func() error
	// bytes is the size of the copy, grown what was promised beyond that of the disk.
	bytes, grown int64
	restored     bool
}

// Prepare implements storage.Storage.
func (d *Disks) Prepare(ctx context.Context, uid sandbox.UID, from storage.Source) (storage.Restoration, error) {
	unlockSource, unlock, err := d.lockEach(from.UID, uid)
	if err != nil {
		return nil, err
	}
	defer unlockSource()
	r := &restoration{disks: d, uid: uid}
	source, err := r.check(from)
	unlock() // the disk may be in use, and nobody is to wait until it is copied
	if err != nil {
		return nil, err
	}
	if r.dir, _, err = d.copySource(ctx, from, source); err == nil && isPlain(r.dir) {
		err = canExchange(r.dir)
	}
	if err != nil {
		r.Discard()
		return nil, err
	}
	r.onDisk = begun(func() error { return syncCopy(r.dir) })
	return r, nil
}

// begun runs f in the background. What it returns waits for the end of f and can be called
// again.
func begun(f func() error) (wait func() error) {
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	return sync.OnceValue(func() error { return <-ended })
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
	r.bytes, r.grown = bytes, max(0, bytes-d.bytes(r.uid))
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
	if err := copyFailed(ctx, r.onDisk()); err != nil {
		return err
	}
	before := d.bytes(r.uid)
	if err := d.putInPlace(r.dir, r.uid); err != nil {
		return err
	}
	r.restored = true
	d.unpromise(before + r.grown - r.bytes)
	return syncDir(d.dir(r.uid))
}

// Discard implements storage.Restoration. Of a copy that a disk was given it
// removes what the disk had before.
func (r *restoration) Discard() {
	if !r.restored {
		r.disks.unpromise(r.grown)
	}
	if r.onDisk != nil {
		if !r.restored {
			// Or all of it is written out before it is removed.
			_ = os.Truncate(filepath.Join(r.dir, imageName), 0)
		}
		_ = r.onDisk() // for the end of it
	}
	if r.dir != "" {
		r.disks.discard(r.dir)
	}
	r.grown, r.dir = 0, ""
}

// canExchange is errs.Unsupported where putInPlace could not give a disk that is a
// directory its content.
func canExchange(dir string) error {
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	err := errors.Join(os.Mkdir(a, 0o700), os.Mkdir(b, 0o700))
	if err == nil {
		err = exchange(a, b)
	}
	return errors.Join(err, os.RemoveAll(a), os.RemoveAll(b))
}

// exchange gives two directories each other's name in one step.
func exchange(a, b string) error {
	err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return errs.E(errs.Unsupported, "the host's file system cannot put a directory in the place of another in one step").
			Hint("keep the data directory on ext4, XFS or btrfs").Because(err)
	case err != nil:
		return fmt.Errorf("restore a disk: %w", err)
	}
	return nil
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
	content, place := filepath.Join(dir, mountName), d.mnt(uid)
	if err := exchange(content, place); err != nil {
		return err
	}
	// The size of a plain directory bounds nothing: after a crash in between it
	// may be that of before.
	if err := os.Rename(filepath.Join(dir, plainName), filepath.Join(d.dir(uid), plainName)); err != nil {
		return errors.Join(fmt.Errorf("restore a disk: %w", err), exchange(content, place))
	}
	return nil
}
