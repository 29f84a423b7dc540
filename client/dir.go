package client

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/cubbyhq/cubby/client/internal/pack"
	"github.com/cubbyhq/cubby/client/internal/unpack"
)

// UploadDir copies what is in the local directory into the sandbox's
// directory remote, which is made when it is missing. Symlinks are copied as
// links; devices, sockets and pipes are left out.
func (f *Files) UploadDir(ctx context.Context, local, remote string) error {
	archive, packed := pack.Stream(ctx, local)
	err := f.Extract(ctx, remote, archive)
	if perr := packed(); perr != nil {
		return perr
	}
	return err
}

// DownloadDir copies what is in the sandbox's directory remote into the local
// directory, which is made when it is missing. The archive comes from a
// sandbox and is not trusted: nothing is written outside local, also not
// through symlinks, and devices are left out.
func (f *Files) DownloadDir(ctx context.Context, remote, local string) error {
	archive, err := f.Archive(ctx, remote, "tar")
	if err != nil {
		return err
	}
	defer archive.Close()
	if err := os.MkdirAll(local, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(local)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // a directory: nothing is lost
	if err := unpack.Dir(root, archive); err != nil {
		var p *fs.PathError
		if errors.As(err, &p) {
			return err
		}
		return f.c.readError(ctx, err)
	}
	return nil
}
