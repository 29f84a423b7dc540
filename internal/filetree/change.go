package filetree

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// MakeDir makes a directory; mode 0 is 0755. With parents it makes those that
// are missing too, and is content with a directory that is there; without, a
// name that is taken is errs.Conflict.
func (t *Tree) MakeDir(ctx context.Context, name string, mode fs.FileMode, parents bool, user string) (sandbox.File, error) {
	f, err := t.makeDir(name, mode, parents, user)
	return f, classify(name, err)
}

func (t *Tree) makeDir(name string, mode fs.FileMode, parents bool, user string) (none sandbox.File, err error) {
	if name, err = Clean(name); err != nil {
		return none, err
	}
	uid, gid, err := t.owner(user)
	if err != nil {
		return none, err
	}
	if err := t.guard(); err != nil {
		return none, err
	}
	if mode &= fs.ModePerm; mode == 0 {
		mode = 0o755
	}
	p, err := t.findToChange(name, parents, uid)
	if errors.Is(err, unix.ENOENT) && parents {
		if err := t.makeParents(path.Dir(name), uid, gid); err != nil {
			return none, err
		}
		p, err = t.findToChange(name, parents, uid)
	}
	if err != nil {
		return none, missingParent(name, err)
	}
	defer p.close()
	if p.found {
		if !parents || p.kind() != unix.S_IFDIR {
			return none, unix.EEXIST
		}
		return p.describe(name), nil
	}
	if err := p.toChange(); err != nil {
		return none, err
	}
	d, err := t.makeDirFor(name, p.dir, p.base, mode, uid, gid)
	if errors.Is(err, unix.EEXIST) && parents {
		// Somebody else made it; a second look says what it is.
		return t.Stat(context.Background(), name, true)
	}
	if err != nil {
		return none, err
	}
	defer d.Close()
	if err := unix.Fstat(int(d.Fd()), &p.st); err != nil {
		return none, err
	}
	return p.describe(name), nil
}

// makeDirFor makes one directory for a user, see [Tree.maker].
func (t *Tree) makeDirFor(name string, dir *os.File, base string, mode fs.FileMode, uid, gid uint32) (*os.File, error) {
	uid, gid, err := t.maker(name, dir, uid, gid)
	if err != nil {
		return nil, err
	}
	return t.makeDirAt(dir, base, mode, uid, gid)
}

// makeDirAt makes one directory and opens it.
func (t *Tree) makeDirAt(dir *os.File, base string, mode fs.FileMode, uid, gid uint32) (*os.File, error) {
	if err := unix.Mkdirat(int(dir.Fd()), base, 0o700); err != nil {
		return nil, err
	}
	d, err := openDirAt(dir, base)
	if err != nil {
		return nil, err
	}
	if err := t.dress(d, mode, uid, gid); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// makeParents makes a directory and those above it that are missing.
func (t *Tree) makeParents(name string, uid, gid uint32) error {
	// From the deepest that exists downwards, each found by name again: a
	// symbolic link in the middle is followed as everywhere.
	var missing []string
	for {
		p, err := t.find(name, true)
		if err == nil && p.found {
			kind := p.kind()
			p.close()
			if kind != unix.S_IFDIR {
				return unix.ENOTDIR
			}
			break
		}
		if err == nil {
			p.close()
		} else if !errors.Is(err, unix.ENOENT) {
			return err
		}
		missing = append(missing, name)
		if name == "/" {
			return unix.ENOENT
		}
		name = path.Dir(name)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		p, err := t.findToChange(missing[i], true, uid)
		if err != nil {
			return err
		}
		if err := p.toChange(); err != nil {
			p.close()
			return err
		}
		d, err := t.makeDirFor(missing[i], p.dir, p.base, 0o755, uid, gid)
		p.close()
		if err == nil {
			d.Close()
		} else if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return nil
}

// Rename moves a file, directory or symbolic link (itself, not its target) to
// another name. What has that name already is errs.Conflict, or replaced
// where the system allows it: files by files, empty directories by
// directories. Between file systems it copies and then removes.
func (t *Tree) Rename(ctx context.Context, from, to string, replace bool) (none sandbox.File, err error) {
	if from, err = Clean(from); err != nil {
		return none, err
	}
	if to, err = Clean(to); err != nil {
		return none, err
	}
	if err := t.guard(); err != nil {
		return none, err
	}
	src, err := there(t.findToChange(from, false, sandbox.UserID))
	if err != nil {
		return none, classify(from, err)
	}
	defer src.close()
	dst, err := t.findToChange(to, false, sandbox.UserID)
	if err != nil {
		return none, classify(to, err)
	}
	defer dst.close()
	if err := cmp.Or(src.toChange(), dst.toChange()); err != nil {
		return none, err
	}
	if src.base == "." || dst.base == "." {
		return none, errPinned
	}
	if strings.HasPrefix(to, from+"/") {
		return none, errs.E(errs.Invalid, "a directory cannot be moved into itself")
	}
	switch {
	case dst.found && !replace:
		return none, classify(to, unix.EEXIST)
	case dst.found && dst.kind() == unix.S_IFDIR && src.kind() != unix.S_IFDIR:
		return none, classify(to, unix.EISDIR)
	case dst.found && dst.kind() != unix.S_IFDIR && src.kind() == unix.S_IFDIR:
		return none, classify(to, unix.ENOTDIR)
	}
	err = renameAt(src, dst, replace)
	if errors.Is(err, unix.EXDEV) {
		err = t.moveAcross(ctx, src, dst, replace)
	}
	if err != nil {
		return none, classify(to, err)
	}
	return t.Stat(ctx, to, false)
}

func renameAt(src, dst *place, replace bool) error {
	var flags uint = unix.RENAME_NOREPLACE
	if replace {
		flags = 0
	}
	err := unix.Renameat2(int(src.dir.Fd()), src.base, int(dst.dir.Fd()), dst.base, flags)
	if flags != 0 && (err == unix.EINVAL || err == unix.ENOSYS) {
		// Not every file system can refuse to replace. The name was free a
		// moment ago.
		return unix.Renameat(int(src.dir.Fd()), src.base, int(dst.dir.Fd()), dst.base)
	}
	return err
}

// moveAcross copies beside the destination, puts the copy in place, and then
// removes the source: at no time is there less than one whole.
func (t *Tree) moveAcross(ctx context.Context, src, dst *place, replace bool) error {
	tmp := &place{dir: dst.dir, base: tempName(), found: true}
	err := t.copyAcross(ctx, src.dir, src.base, tmp.dir, tmp.base, maxDepth)
	if err == nil {
		err = renameAt(tmp, dst, replace)
	}
	if err != nil {
		_ = removeAll(context.WithoutCancel(ctx), tmp.dir, tmp.base)
		return err
	}
	return removeAll(ctx, src.dir, src.base)
}

var errPinned = errs.E(errs.Forbidden, "this directory belongs to the sandbox itself and can be neither moved nor removed")

// Remove removes a file, a symbolic link, an empty directory, or with
// recursive a directory with all that is in it. A name that is not there is
// errs.NotFound.
func (t *Tree) Remove(ctx context.Context, name string, recursive bool) error {
	name, err := Clean(name)
	if err != nil {
		return err
	}
	p, err := there(t.findToChange(name, false, sandbox.UserID))
	if err != nil {
		return classify(name, err)
	}
	defer p.close()
	if err := p.toChange(); err != nil {
		return classify(name, err)
	}
	if p.base == "." || name == sandbox.WorkspaceDir || name == sandbox.HomeDir {
		return errPinned
	}
	if recursive {
		return classify(name, removeAll(ctx, p.dir, p.base))
	}
	return classify(name, removeOne(p.dir, p.base, p.kind()))
}

func removeOne(dir *os.File, base string, kind uint32) error {
	flags := 0
	if kind == unix.S_IFDIR {
		flags = unix.AT_REMOVEDIR
	}
	return unix.Unlinkat(int(dir.Fd()), base, flags)
}

// removeAll removes base and everything below it. Trees of any depth take a
// bounded number of file descriptors: what lies too deep is moved up first.
func removeAll(ctx context.Context, dir *os.File, base string) error {
	st, err := statAt(dir, base)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return unix.Unlinkat(int(dir.Fd()), base, 0)
	}
	top, err := openDirAt(dir, base)
	if err != nil {
		return err
	}
	defer top.Close()
	if err := empty(ctx, top, top, 0); err != nil {
		return err
	}
	err = unix.Unlinkat(int(dir.Fd()), base, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

const removeDepth = 64

// empty removes all entries of dir. top is the directory that removal began
// with.
func empty(ctx context.Context, top, dir *os.File, depth int) error {
	// Removing while reading may skip entries, so it is repeated until a
	// fresh look finds nothing.
	for {
		if _, err := dir.Seek(0, 0); err != nil {
			return err
		}
		removed := 0
		names, err := dir.Readdirnames(4096)
		for ; err == nil; names, err = dir.Readdirnames(4096) {
			for _, name := range names {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := emptyOne(ctx, top, dir, name, depth); err != nil && !errors.Is(err, unix.ENOENT) {
					return err
				}
				removed++
			}
		}
		if removed == 0 {
			return nil
		}
	}
}

func emptyOne(ctx context.Context, top, dir *os.File, name string, depth int) error {
	err := unix.Unlinkat(int(dir.Fd()), name, 0)
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	switch rmErr := unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR); rmErr {
	case unix.ENOTEMPTY, unix.EEXIST:
	case unix.ENOTDIR:
		return err // a file after all, and not ours to remove
	default:
		return rmErr
	}
	if depth == removeDepth {
		return unix.Renameat(int(dir.Fd()), name, int(top.Fd()), tempName())
	}
	sub, err := openDirAt(dir, name)
	if err != nil {
		return err
	}
	defer sub.Close()
	if err := empty(ctx, top, sub, depth+1); err != nil {
		return err
	}
	return unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR)
}
