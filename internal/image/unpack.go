package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
)

// limits bound what an archive can cost.
type limits struct {
	bytes   int64 // of all files, unpacked
	entries int   // of all layers
	layers  int
	path    int   // bytes of a path
	depth   int   // of a path
	reserve int64 // bytes that stay free on the disk
}

func defaultLimits() limits {
	return limits{
		bytes: 64 << 30, entries: 2_000_000, layers: 256,
		path: 4096, depth: 255, reserve: 1 << 30,
	}
}

// unpacker writes below one directory and nowhere else. Symbolic links in the
// tree are followed as the sandbox would follow them, with the tree as root;
// the operations themselves go through os.Root, which refuses what leaves it.
// Nobody else writes to the tree meanwhile.
type unpacker struct {
	root   *os.Root
	limits limits
	chown  bool
	// leave says which entries of an archive are left out, by their cleaned
	// paths; nil: none.
	leave func(path string) bool
	// capabilities: files have those that the archive says.
	capabilities bool

	bytes   int64
	entries int
	// times are the directories' times, set at the end: every file that is
	// put into a directory changes it.
	times map[string]time.Time
	// layer is what the current layer has written: whiteouts spare it. opaque
	// are the directories that it has emptied.
	layer, opaque map[string]bool

	// parent is the directory of the last write, kept open: archives come
	// directory by directory.
	parent     *os.Root
	parentPath string
}

// newUnpacker opens dir, creating it.
func newUnpacker(dir string, l limits, chown bool) (*unpacker, error) {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	return &unpacker{
		root: root, limits: l, chown: chown, times: map[string]time.Time{},
		layer: map[string]bool{}, opaque: map[string]bool{},
	}, nil
}

func (u *unpacker) close() {
	u.closeParent()
	_ = u.root.Close()
}

func (u *unpacker) closeParent() {
	if u.parent != nil {
		_ = u.parent.Close()
		u.parent, u.parentPath = nil, ""
	}
}

// finish sets the times of directories.
func (u *unpacker) finish() error {
	u.closeParent()
	for p, t := range u.times {
		info, err := u.root.Lstat(p)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
			continue // a later layer took it away
		}
		if err == nil {
			err = u.root.Chtimes(p, t, t)
		}
		if err != nil {
			return fmt.Errorf("unpack: %w", err)
		}
	}
	return nil
}

// clean turns a path of an archive into a relative one, "." for the root.
// Paths that try to leave are not bent into shape: the archive is refused.
func (u *unpacker) clean(name string) (string, error) {
	if len(name) > u.limits.path || strings.ContainsRune(name, 0) {
		return "", malformed("a path is too long or holds a NUL")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", malformed("a path leads out of the image")
		}
	}
	p := strings.TrimPrefix(path.Clean("/"+name), "/")
	if p == "" {
		p = "."
	}
	if strings.Count(p, "/") >= u.limits.depth {
		return "", malformed("a path is too deep")
	}
	return p, nil
}

// resolve follows the symbolic links in p's directory part, with the tree as
// the root of absolute ones, and returns the path free of links. The last
// element is not followed. Directories that are missing are created.
func (u *unpacker) resolve(p string) (string, error) {
	if p == "." {
		return p, nil
	}
	dir, base := path.Split(p)
	real, err := u.resolveDir(strings.TrimSuffix(dir, "/"))
	if err != nil {
		return "", err
	}
	return path.Join(real, base), nil
}

// A path's way through links is bounded in links and in steps.
const (
	maxLinks = 64
	maxSteps = 2048
)

func (u *unpacker) resolveDir(dir string) (string, error) {
	real := "."
	todo := strings.Split(dir, "/")
	links := 0
	for steps := 0; len(todo) > 0; steps++ {
		if links > maxLinks || steps > maxSteps {
			return "", malformed("too many symbolic links in a path")
		}
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..": // out of a link's target; above the root is the root
			real = path.Dir(real)
			continue
		}
		next := path.Join(real, part)
		info, err := u.root.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if err := u.root.Mkdir(next, 0o755); err != nil {
				return "", err
			}
			u.entries++
		case err != nil:
			return "", err
		case info.Mode()&fs.ModeSymlink != 0:
			links++
			target, err := u.root.Readlink(next)
			if err != nil {
				return "", err
			}
			if path.IsAbs(target) {
				real = "."
			}
			todo = append(strings.Split(target, "/"), todo...)
			continue
		case !info.IsDir():
			return "", malformed("a path leads through a file")
		}
		real = next
	}
	return real, nil
}

// in returns the open directory of a resolved path, and its last element.
func (u *unpacker) in(real string) (*os.Root, string, error) {
	dir, base := path.Split(real)
	dir = strings.TrimSuffix(dir, "/")
	if dir == "" {
		return u.root, base, nil
	}
	if u.parent == nil || u.parentPath != dir {
		u.closeParent()
		r, err := u.root.OpenRoot(dir)
		if err != nil {
			return nil, "", err
		}
		u.parent, u.parentPath = r, dir
	}
	return u.parent, base, nil
}

// removeAll removes a resolved path and everything below it.
func (u *unpacker) removeAll(real string) error {
	if u.parentPath == real || strings.HasPrefix(u.parentPath, real+"/") {
		u.closeParent()
	}
	return u.root.RemoveAll(real)
}

// makeWay removes what is at a resolved path, unless it is a directory and a
// directory is to come.
func (u *unpacker) makeWay(real string, forDir bool) (exists bool, err error) {
	info, err := u.root.Lstat(real)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if forDir && info.IsDir() {
		return true, nil
	}
	if real == "." {
		return false, malformed("the root is not a directory")
	}
	return false, u.removeAll(real)
}

// attributes are what an entry carries beside its contents.
type attributes struct {
	mode     fs.FileMode // permission and set-id bits
	uid, gid int
	mtime    time.Time
	// capabilities are of a regular file, as the kernel writes them; "" is
	// none.
	capabilities string
}

func (u *unpacker) dir(real string, a attributes) error {
	exists, err := u.makeWay(real, true)
	if err != nil {
		return err
	}
	if !exists {
		if err := u.root.Mkdir(real, 0o755); err != nil {
			return err
		}
	}
	u.times[real] = a.mtime
	return u.attribute(u.root, real, a, false)
}

func (u *unpacker) file(real string, r io.Reader, a attributes) (err error) {
	if _, err := u.makeWay(real, false); err != nil {
		return err
	}
	dir, base, err := u.in(real)
	if err != nil {
		return err
	}
	f, err := dir.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = cerr
		}
		if err == nil {
			err = dir.Chtimes(base, a.mtime, a.mtime)
		}
	}()
	if r != nil {
		if _, err := io.Copy(f, r); err != nil {
			return err
		}
	}
	if u.chown {
		if err := f.Chown(a.uid, a.gid); err != nil {
			return err
		}
	}
	if err := f.Chmod(a.mode); err != nil { // after the owner, whose change clears set-id bits
		return err
	}
	if a.capabilities == "" {
		return nil
	}
	return unix.Fsetxattr(int(f.Fd()), capabilityAttribute, []byte(a.capabilities), 0)
}

func (u *unpacker) symlink(real, target string, a attributes) error {
	if target == "" || len(target) > u.limits.path || strings.ContainsRune(target, 0) {
		return malformed("a symbolic link has no target")
	}
	if _, err := u.makeWay(real, false); err != nil {
		return err
	}
	dir, base, err := u.in(real)
	if err != nil {
		return err
	}
	if err := dir.Symlink(target, base); err != nil {
		return err
	}
	return u.attribute(dir, base, a, true)
}

// hardlink links real to another resolved path of the tree.
func (u *unpacker) hardlink(real, target string) error {
	info, err := u.root.Lstat(target)
	if errors.Is(err, fs.ErrNotExist) {
		return malformed("a hard link has no target")
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		return malformed("a hard link to a directory")
	}
	if real == target {
		return nil
	}
	if _, err := u.makeWay(real, false); err != nil {
		return err
	}
	return u.root.Link(target, real)
}

func (u *unpacker) attribute(dir *os.Root, name string, a attributes, link bool) error {
	if u.chown {
		if err := dir.Lchown(name, a.uid, a.gid); err != nil {
			return err
		}
	}
	if link {
		return nil
	}
	return dir.Chmod(name, a.mode)
}

// target creates a mount target where the tree has none of its type. It leaves
// the times of its parent as they are, for the digest's sake.
func (u *unpacker) target(t driver.Target) error {
	real, err := u.resolve(strings.TrimPrefix(t.Path, "/"))
	if err != nil {
		return err
	}
	// A last element that is a link would let a mount land elsewhere.
	info, err := u.root.Lstat(real)
	if err == nil && (t.Dir && info.IsDir() || !t.Dir && info.Mode().IsRegular()) {
		return nil
	}
	a := attributes{mode: t.Mode, uid: t.UID, gid: t.GID, mtime: time.Unix(0, 0)}
	if t.Dir {
		return u.dir(real, a)
	}
	return u.file(real, nil, a)
}

func malformed(format string, args ...any) error {
	return errs.E(errs.Invalid, "the archive is refused: "+format, args...)
}

// diskError classifies what the host's file system says about an unpack.
func diskError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return errs.E(errs.Exhausted, "the disk that holds the images is full").Because(err)
	}
	return err
}
