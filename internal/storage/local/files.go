package local

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/cubbyhq/cubby/internal/filetree"
	"github.com/cubbyhq/cubby/internal/hostdisk"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// Files gives the files of a sandbox that does not run until done. Its disks
// stay mounted for a while after that.
func (d *Disks) Files(ctx context.Context, use storage.Use) (tree storage.Tree, done func(), err error) {
	own, ownDone, err := d.openFiles(ctx, use.Own, use.User)
	if err != nil {
		return nil, nil, err
	}
	home := filetree.Mount{Path: sandbox.HomeDir, Dir: filepath.Join(own.Dir, "home")}
	if use.Shared == "" {
		return filetree.Confined(filetree.Options{Guard: d.guard(own)},
			filetree.Mount{Path: sandbox.WorkspaceDir, Dir: filepath.Join(own.Dir, "workspace")}, home), ownDone, nil
	}
	shared, sharedDone, err := d.openFiles(ctx, use.Shared, use.User)
	if err != nil {
		ownDone()
		return nil, nil, err
	}
	return filetree.Confined(filetree.Options{Guard: d.guard(shared)},
		filetree.Mount{Path: sandbox.WorkspaceDir, Dir: filepath.Join(shared.Dir, "workspace")},
		filetree.Mount{Path: sandbox.OutputsDir, Dir: filepath.Join(shared.Dir, "outputs")},
		home,
	), func() { sharedDone(); ownDone() }, nil
}

// openFiles mounts a disk for one more use of its files.
func (d *Disks) openFiles(ctx context.Context, uid, by sandbox.UID) (disk storage.Disk, done func(), err error) {
	defer d.locks.Wait(string(uid))()
	if disk, err = d.mount(ctx, uid); err != nil {
		return disk, nil, err
	}
	end := d.uses.files(uid, by)
	return disk, sync.OnceFunc(func() { end(d.cfg.Now()) }), nil
}

// Uploads gives the uploads of a shared disk until done, which unmounts it when
// nobody else uses it: uploads are not read one after another.
func (d *Disks) Uploads(ctx context.Context, shared sandbox.UID) (tree storage.Tree, done func(), err error) {
	user := sandbox.NewUID()
	disk, ended, err := d.openFiles(ctx, shared, user)
	if err != nil {
		return nil, nil, err
	}
	return filetree.Confined(filetree.Options{Guard: d.guard(disk)},
			filetree.Mount{Path: sandbox.UploadsDir, Dir: filepath.Join(disk.Dir, "uploads")},
		), sync.OnceFunc(func() {
			ended()
			_ = d.detachOne(shared, user) // Rest tries again, and says why it fails
		}), nil
}

// guard refuses writes to a disk while the host is nearly full.
func (d *Disks) guard(disk storage.Disk) func() error {
	if disk.Quota {
		return func() error {
			if d.isFrozen() {
				return hostFull()
			}
			return nil
		}
	}
	return func() error {
		if s, err := hostdisk.Measure(d.cfg.Dir); err == nil && s.Free < d.cfg.Reserve/2 {
			return hostFull()
		}
		return nil
	}
}
