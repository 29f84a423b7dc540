package local

import (
	"context"

	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// What follows works on a disk without a use of it, for tests of what is below
// the uses.

func (d *Disks) createAlone(ctx context.Context, uid sandbox.UID, bytes int64) (storage.Disk, error) {
	if err := d.Create(ctx, uid, storage.Own, bytes); err != nil {
		return storage.Disk{}, err
	}
	return d.mountAlone(ctx, uid)
}

func (d *Disks) mountAlone(ctx context.Context, uid sandbox.UID) (storage.Disk, error) {
	defer d.locks.Wait(string(uid))()
	return d.mount(ctx, uid)
}

func (d *Disks) unmountAlone(_ context.Context, uid sandbox.UID) error {
	defer d.locks.Wait(string(uid))()
	return d.unmount(uid)
}

func (d *Disks) filesAlone(ctx context.Context, uid sandbox.UID) (storage.Tree, error) {
	tree, done, err := d.Files(ctx, storage.Use{User: uid, Own: uid})
	if err == nil {
		done()
	}
	return tree, err
}
