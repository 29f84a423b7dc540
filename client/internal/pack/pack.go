// Package pack makes tars of local directories, as an upload sends them. Devices,
// sockets and pipes are not in them, and no link is followed out of the directory.
package pack

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Dir writes what is in a directory as a tar. Symlinks stay links; devices, sockets
// and pipes are left out.
func Dir(ctx context.Context, w io.Writer, dir string) error {
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
