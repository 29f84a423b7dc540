package local

import (
	"context"
	"path/filepath"

	"github.com/cubbyhq/cubby/internal/filetree"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// sharedDirs are those of a disk that several sandboxes share.
func sharedDirs() []diskDir {
	return []diskDir{{name: "workspace", mode: 0o755, own: true}, {name: "outputs", mode: 0o755, own: true}, {name: "uploads", mode: 0o755, own: true}}
}

// CreateShared is Create of a disk that sandboxes have in common, beside their
// own: its directories are workspace, outputs and uploads.
func (d *Disks) CreateShared(ctx context.Context, uid sandbox.UID, bytes int64) (storage.Disk, error) {
	return d.make(ctx, uid, bytes, func() (string, error) { return d.build(ctx, bytes, sharedDirs()) })
}

// SharedTree is Tree of a sandbox that shares another disk: the workspace and
// outputs are that one's. Uploads are only read by sandboxes and not in it.
func (d *Disks) SharedTree(ctx context.Context, uid, shared sandbox.UID) (storage.Tree, error) {
	own, err := d.Mount(ctx, uid)
	if err != nil {
		return nil, err
	}
	common, err := d.Mount(ctx, shared)
	if err != nil {
		return nil, err
	}
	return filetree.Confined(filetree.Options{Guard: d.guard(common)},
		filetree.Mount{Path: sandbox.WorkspaceDir, Dir: filepath.Join(common.Dir, "workspace")},
		filetree.Mount{Path: sandbox.OutputsDir, Dir: filepath.Join(common.Dir, "outputs")},
		filetree.Mount{Path: sandbox.HomeDir, Dir: filepath.Join(own.Dir, "home")},
	), nil
}

// UploadTree is the file API of the uploads of a shared disk, which is mounted
// when it is not. It holds nothing but [sandbox.UploadsDir].
func (d *Disks) UploadTree(ctx context.Context, shared sandbox.UID) (storage.Tree, error) {
	common, err := d.Mount(ctx, shared)
	if err != nil {
		return nil, err
	}
	return filetree.Confined(filetree.Options{Guard: d.guard(common)},
		filetree.Mount{Path: sandbox.UploadsDir, Dir: filepath.Join(common.Dir, "uploads")},
	), nil
}
