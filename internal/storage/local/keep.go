package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Keep copies a disk of one instant and its snapshots into a directory that is as that
// of the disk, until done is called. Its writers wait for the copy, as for a snapshot.
// Errors are those of Snapshot.
func (d *Disks) Keep(ctx context.Context, uid sandbox.UID) (dir string, done func(), err error) {
	if _, err := sandbox.ParseUID(string(uid)); err != nil {
		return "", nil, err
	}
	defer d.locks.Wait(string(uid))()
	if err := d.exists(uid); err != nil {
		return "", nil, err
	}
	if err := d.admitCopy(allocated(d.dir(uid))); err != nil {
		return "", nil, err
	}
	dir, err = d.copyUnsynced(ctx, d.dir(uid), func(copies func() error) error {
		_, err := d.still(ctx, uid, copies)
		return err
	})
	if err != nil {
		return "", nil, err
	}
	if err := copyFailed(ctx, d.keepSnapshots(ctx, uid, dir)); err != nil {
		d.discard(dir)
		return "", nil, err
	}
	return dir, func() { d.discard(dir) }, nil
}

// keepSnapshots gives a copy of a disk the snapshots of the disk, whose lock the caller
// has. They do not change: an image need not be copied for that.
func (d *Disks) keepSnapshots(ctx context.Context, uid sandbox.UID, to string) error {
	all, err := readSnapshots(d.dir(uid))
	for _, s := range all {
		from, to := d.snapshotDir(uid, s.Name), filepath.Join(to, snapshotsName, s.Name)
		if err := os.MkdirAll(to, 0o700); err != nil {
			return err
		}
		if isPlain(from) {
			err = d.fillCopy(ctx, to, from)
		} else {
			err = errors.Join(os.Link(filepath.Join(from, imageName), filepath.Join(to, imageName)), os.Mkdir(filepath.Join(to, mountName), 0o700))
		}
		if err = errors.Join(err, os.Link(filepath.Join(from, infoName), filepath.Join(to, infoName))); err != nil {
			return err
		}
	}
	return err
}
