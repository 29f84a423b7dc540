package client

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
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
		if target, err = root.Readlink(name); err != nil {
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
	if err := unpackDir(root, archive); err != nil {
		var p *fs.PathError
		if errors.As(err, &p) {
			return err
		}
		return f.c.readError(ctx, err)
	}
	return nil
}

// unpackDir writes a tar below root. Directories get their modes at the end,
// so that a read-only one can be filled.
func unpackDir(root *os.Root, r io.Reader) error {
	modes := map[string]fs.FileMode{}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if name == "" || !filepath.IsLocal(filepath.FromSlash(name)) {
			continue
		}
		if err := unpackEntry(root, filepath.FromSlash(name), h, tr, modes); err != nil {
			return err
		}
	}
	for name, mode := range modes {
		if err := root.Chmod(name, mode); err != nil {
			return err
		}
	}
	return nil
}

func unpackEntry(root *os.Root, name string, h *tar.Header, content io.Reader, modes map[string]fs.FileMode) error {
	if dir := filepath.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	perm := fs.FileMode(h.Mode).Perm()
	switch h.Typeflag {
	case tar.TypeDir:
		if err := root.MkdirAll(name, perm|0o700); err != nil {
			return err
		}
		modes[name] = perm
		return nil
	case tar.TypeReg:
		return unpackFile(root, name, perm, h, content)
	case tar.TypeSymlink:
		if err := replaceable(root, name); err != nil {
			return err
		}
		return root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		target := strings.TrimPrefix(path.Clean("/"+h.Linkname), "/")
		if err := replaceable(root, name); err != nil {
			return err
		}
		return root.Link(filepath.FromSlash(target), name)
	}
	return nil
}

// unpackFile replaces what stands at name: opening it instead would write
// through a symlink that an earlier entry made.
func unpackFile(root *os.Root, name string, perm fs.FileMode, h *tar.Header, content io.Reader) error {
	if err := replaceable(root, name); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm|0o200)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err == nil {
		err = f.Chmod(perm)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil && !h.ModTime.IsZero() {
		err = root.Chtimes(name, h.ModTime, h.ModTime)
	}
	return err
}

// replaceable makes room for a new entry at name; a directory stays, and the
// making of the entry then fails.
func replaceable(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return &fs.PathError{Op: "replace", Path: name, Err: errors.New("a directory is in the way")}
	}
	return root.Remove(name)
}
