// Package unpack writes archives that a daemon sent to directories of the
// caller, which nothing in them can lead out of.
package unpack

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Dir writes a tar below root. Directories get their modes at the end,
// so that a read-only one can be filled.
func Dir(root *os.Root, r io.Reader) error {
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
		if err := entry(root, filepath.FromSlash(name), h, tr, modes); err != nil {
			return err
		}
	}
	// What is below a directory comes before it, which may become unreadable.
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(modes))) {
		if err := chmod(root, name, modes[name]); err != nil {
			return err
		}
	}
	return nil
}

func chmod(root *os.Root, name string, mode fs.FileMode) error {
	dir, err := root.Open(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Chmod(mode)
}

func entry(root *os.Root, name string, h *tar.Header, content io.Reader, modes map[string]fs.FileMode) error {
	if dir := filepath.Dir(name); dir != "." {
		if err := mkdirAll(root, dir, 0o755); err != nil {
			return err
		}
	}
	perm := fs.FileMode(h.Mode).Perm()
	switch h.Typeflag {
	case tar.TypeDir:
		if err := mkdirAll(root, name, perm|0o700); err != nil {
			return err
		}
		modes[name] = perm
		return nil
	case tar.TypeReg:
		return file(root, name, perm, h, content)
	case tar.TypeSymlink:
		if err := replaceable(root, name); err != nil {
			return err
		}
		return at(root, name, func(place string) error { return os.Symlink(h.Linkname, place) })
	case tar.TypeLink:
		target := strings.TrimPrefix(path.Clean("/"+h.Linkname), "/")
		if err := replaceable(root, name); err != nil {
			return err
		}
		return link(root, filepath.FromSlash(target), name)
	}
	return nil
}

// mkdirAll makes a directory and those above it that are missing.
func mkdirAll(root *os.Root, name string, perm fs.FileMode) error {
	if dir := filepath.Dir(name); dir != "." {
		if _, err := root.Stat(dir); err != nil {
			if err := mkdirAll(root, dir, 0o755); err != nil {
				return err
			}
		}
	}
	err := root.Mkdir(name, perm)
	if errors.Is(err, fs.ErrExist) {
		info, serr := root.Stat(name)
		if serr == nil && info.IsDir() {
			return nil
		}
	}
	return err
}

// at calls with the path of name for what an os.Root of Go 1.24 cannot do. The
// directory above was opened below root, so nothing in the archive leads out
// of it; the last element is not followed by what is called.
func at(root *os.Root, name string, do func(place string) error) error {
	parent, err := root.OpenRoot(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer func() { _ = parent.Close() }() // a directory: nothing is lost
	return do(filepath.Join(root.Name(), name))
}

// link makes a second name of a regular file that came before.
func link(root *os.Root, target, name string) error {
	info, err := root.Lstat(target)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return &fs.PathError{Op: "link", Path: target, Err: errors.New("not a regular file")}
	}
	return at(root, target, func(old string) error {
		return at(root, name, func(place string) error { return os.Link(old, place) })
	})
}

// file replaces what stands at name: opening it instead would write
// through a symlink that an earlier entry made.
func file(root *os.Root, name string, perm fs.FileMode, h *tar.Header, content io.Reader) error {
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
		err = at(root, name, func(place string) error { return os.Chtimes(place, h.ModTime, h.ModTime) })
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
