package client

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cubbyhq/cubby/client/internal/unpack"
)

// UploadDir copies what is in the local directory into the sandbox's
// directory remote, which is made when it is missing. Symlinks are copied as
// links; devices, sockets and pipes are left out.
func (f *Files) UploadDir(ctx context.Context, local, remote string) error {
	pr, pw := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := packDir(ctx, pw, local)
		packed <- err
		_ = pw.CloseWithError(err) // never fails
	}()
	err := f.Extract(ctx, remote, pr)
	_ = pr.CloseWithError(io.ErrClosedPipe) // ends the packing when the daemon refused early
	if perr := <-packed; perr != nil && !errors.Is(perr, io.ErrClosedPipe) {
		return perr
	}
	return err
}

func packDir(ctx context.Context, w io.Writer, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // a directory: nothing is lost
	tw := tar.NewWriter(w)
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if name == "." {
			return nil
		}
		return packEntry(tw, root, name, d)
	})
	if err != nil {
		return err
	}
	return tw.Close()
}

func packEntry(tw *tar.Writer, root *os.Root, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	target := ""
	switch {
	case info.Mode().IsRegular(), info.IsDir():
	case info.Mode()&fs.ModeSymlink != 0:
		if target, err = os.Readlink(filepath.Join(root.Name(), name)); err != nil {
			return err
		}
	default:
		return nil
	}
	var content *os.File
	if info.Mode().IsRegular() {
		if content, err = root.Open(name); err != nil {
			return err
		}
		defer content.Close()
		if info, err = content.Stat(); err != nil { // the size of what is open now
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name = filepath.ToSlash(name)
	if info.IsDir() {
		h.Name += "/"
	}
	// Whose files they are here means nothing inside.
	h.Uid, h.Gid, h.Uname, h.Gname = 0, 0, "", ""
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	if content == nil {
		return nil
	}
	n, err := io.Copy(tw, io.LimitReader(content, h.Size))
	if err == nil && n < h.Size {
		err = fmt.Errorf("%s became shorter while it was read", name)
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
