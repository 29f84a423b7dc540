package tenants

import (
	"context"
	"io"
	"path"
	"strings"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/core/transfer"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// Uploads of a tenant are files that all its sandboxes see below
// /mnt/user-data/uploads and none of them can change. Paths are relative to
// there, or absolute as inside.

// uploads opens the uploads of a tenant until done.
func (s *Tenants) uploads(ctx context.Context, tenant string) (tree storage.Tree, done func(), err error) {
	leave, err := s.cfg.Gate.Enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	shared, unlock, err := s.disk(ctx, tenant)
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	tree, done, err = s.cfg.Disks.Uploads(ctx, shared)
	return tree, done, s.shareable(ctx, shared, err)
}

// uploadPath makes a path of an upload absolute.
func uploadPath(name string) (string, error) {
	if !path.IsAbs(name) {
		name = sandbox.UploadsDir + "/" + name
	}
	name = path.Clean(name)
	if name != sandbox.UploadsDir && !strings.HasPrefix(name, sandbox.UploadsDir+"/") {
		return "", errs.E(errs.Invalid, "path: not below %s", sandbox.UploadsDir)
	}
	return name, nil
}

// readUploads is for uploads that are there: a tenant that is not known has none.
func (s *Tenants) readUploads(ctx context.Context, tenant, name string) (tree storage.Tree, at string, done func(), err error) {
	if at, err = uploadPath(name); err != nil {
		return nil, "", nil, err
	}
	if _, err := s.cfg.Scope.Tenant(ctx, tenant); err != nil {
		return nil, "", nil, err
	}
	tree, done, err = s.uploads(ctx, tenant)
	return tree, at, done, err
}

// WriteUpload stores a file, with the directories above it. The tenant begins
// with it when it is not known.
func (s *Tenants) WriteUpload(ctx context.Context, tenant, name string, r io.Reader) (sandbox.File, error) {
	at, err := uploadPath(name)
	if err != nil {
		return sandbox.File{}, err
	}
	if at == sandbox.UploadsDir {
		return sandbox.File{}, errs.E(errs.Invalid, "path: missing")
	}
	if err := sandbox.ValidateTenant(tenant); err != nil {
		return sandbox.File{}, err
	}
	if !auth.From(ctx).Sees(tenant) {
		return sandbox.File{}, scope.NoSuchTenant()
	}
	tree, done, err := s.uploads(ctx, tenant)
	if err != nil {
		return sandbox.File{}, err
	}
	defer done()
	return tree.Write(ctx, at, r, sandbox.FileWrite{Parents: true})
}

// ListUploads lists a directory of a tenant's uploads, with recursive
// everything below it. It has at most limit entries, else it is TooLarge.
func (s *Tenants) ListUploads(ctx context.Context, tenant, name string, recursive bool, limit int) ([]sandbox.File, error) {
	tree, at, done, err := s.readUploads(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	defer done()
	var files []sandbox.File
	for f, err := range tree.ListFiles(ctx, at, recursive) {
		if err != nil {
			return nil, err
		}
		if len(files) == limit {
			return nil, errs.E(errs.TooLarge, "the listing is over %d entries", limit).Hint("list a smaller directory, or one level at a time")
		}
		files = append(files, f)
	}
	return files, nil
}

// ReadUpload streams an upload. The caller closes the reader.
func (s *Tenants) ReadUpload(ctx context.Context, tenant, name string) (io.ReadCloser, sandbox.File, error) {
	tree, at, done, err := s.readUploads(ctx, tenant, name)
	if err != nil {
		return nil, sandbox.File{}, err
	}
	r, f, err := tree.Read(ctx, at, 0, -1)
	if err != nil {
		done()
		return nil, sandbox.File{}, err
	}
	return transfer.InUse(r, done), f, nil
}

// RemoveUpload deletes an upload or, with recursive, a directory of them.
func (s *Tenants) RemoveUpload(ctx context.Context, tenant, name string, recursive bool) error {
	tree, at, done, err := s.readUploads(ctx, tenant, name)
	if err != nil {
		return err
	}
	defer done()
	return tree.Remove(ctx, at, recursive)
}
