package filetree

import (
	"errors"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
)

// space opens directories by the names of the sandbox. Everything else is done
// relative to an open directory, on one name at a time, without following it.
type space interface {
	// openDir opens a directory. The name is absolute; it may hold "..", which
	// means what it means to the kernel.
	openDir(name string) (*os.File, error)
	// openReal is openDir for a name that holds neither symbolic links nor
	// "..".
	openReal(name string) (*os.File, error)
	// walks says whether openDir can fail where a walk in the sandbox's own
	// names succeeds: symbolic links that the kernel cannot follow here.
	walks() bool
	// top says whether a clean name cannot be looked up in its parent; of
	// other names it knows nothing.
	top(name string) bool
}

const (
	dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NONBLOCK
	maxLinks = 40 // as the kernel
)

// whole is this process's own file system.
type whole struct{ mapPath func(string) string }

func (s whole) here(name string) string {
	if s.mapPath == nil {
		return name
	}
	return s.mapPath(name)
}

func (s whole) openDir(name string) (*os.File, error) {
	if s.mapPath != nil {
		// The kernel would follow links in its names, not in the sandbox's.
		return nil, unix.ENOENT
	}
	return s.openReal(name)
}

func (s whole) openReal(name string) (*os.File, error) {
	return os.OpenFile(s.here(name), dirFlags, 0)
}
func (s whole) walks() bool { return s.mapPath != nil }

func (s whole) top(name string) bool {
	if s.mapPath == nil || path.Clean(name) != name {
		return name == "/"
	}
	return name == "/" || path.Join(s.here(path.Dir(name)), path.Base(name)) != s.here(name)
}

// confined sees only its mounts.
type confined struct{ mounts []Mount }

var errOutside = errs.E(errs.WrongState, "the path is not on the sandbox's disk").
	Hint("while the sandbox is stopped only /workspace and /home/sandbox can be used, and of a tenant's /mnt/user-data/outputs; start it to reach everything else")

func (s confined) openDir(name string) (*os.File, error) {
	for _, m := range s.mounts {
		rest, ok := strings.CutPrefix(name, m.Path)
		if !ok || rest != "" && rest[0] != '/' {
			continue
		}
		root, err := os.OpenRoot(m.Dir)
		if err != nil {
			return nil, err
		}
		defer func() { _ = root.Close() }()
		if rest = strings.Trim(rest, "/"); rest == "" {
			rest = "."
		}
		return root.OpenFile(rest, dirFlags, 0)
	}
	return nil, errOutside
}
func (s confined) openReal(name string) (*os.File, error) { return s.openDir(name) }
func (s confined) walks() bool                            { return true }

func (s confined) top(name string) bool {
	for _, m := range s.mounts {
		if name == m.Path || name == "/" || strings.HasPrefix(m.Path, name+"/") {
			return true
		}
	}
	return false
}

// openDir opens a directory of the tree by an absolute name. With a trail it notes the
// links on the way.
func (t *Tree) openDir(name string, via *trail) (*os.File, error) {
	if via == nil {
		d, err := t.space.openDir(name)
		if err == nil || !t.space.walks() {
			return d, err
		}
	}
	return t.walk(name, via)
}

// walk resolves a name one step at a time in the names of the sandbox.
func (t *Tree) walk(name string, via *trail) (*os.File, error) {
	var (
		cur   = "/"    // where the walk is: real, clean
		dir   *os.File // cur, once it was needed
		todo  = strings.Split(name, "/")
		links int
	)
	leave := func() {
		if dir != nil {
			dir.Close()
			dir = nil
		}
	}
	defer leave()
	for len(todo) > 0 {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			cur = path.Dir(cur)
			leave()
			continue
		}
		next := path.Join(cur, part)
		if t.space.top(next) {
			cur = next
			leave()
			continue
		}
		if dir == nil {
			var err error
			if dir, err = t.space.openReal(cur); err != nil {
				return nil, err
			}
		}
		st, err := statAt(dir, part)
		if err != nil {
			return nil, err
		}
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			target, err := readLinkAt(dir, part)
			if err != nil {
				return nil, err
			}
			if links++; links > maxLinks || target == "" || len(target)+len(todo) > 4*MaxPath {
				return nil, unix.ELOOP
			}
			if err := via.pass(next, dir, st); err != nil {
				return nil, err
			}
			if strings.HasPrefix(target, "/") {
				cur = "/"
				leave()
			}
			todo = append(strings.Split(target, "/"), todo...)
			continue
		}
		sub, err := openDirAt(dir, part)
		if err != nil {
			return nil, err
		}
		leave()
		dir, cur = sub, next
	}
	if dir != nil {
		d := dir
		dir = nil
		return d, nil
	}
	return t.space.openReal(cur)
}

// place is one name in an open directory.
type place struct {
	dir  *os.File
	base string // "." when the name is a directory that has no parent here
	st   unix.Stat_t
	// found: st describes what base names now.
	found bool
	// via is who else than root decided that the name leads here, of a place that is to
	// be changed.
	via trail
}

// toChange refuses a place whose name or file is not to be changed on this way.
func (p *place) toChange() error { return p.via.change(p) }

func (p *place) close() { _ = p.dir.Close() }

func (p *place) kind() uint32 { return p.st.Mode & unix.S_IFMT }

// find opens the directory that holds a clean name and looks the name up. With
// follow, symbolic links at its end are followed. A name that is not there is
// no error while its directory is.
func (t *Tree) find(name string, follow bool) (*place, error) { return t.findBy(name, follow, nil) }

// findToChange is find of what is to be changed for a user. Where that is root, or where
// whoever works here is not, there is no line between them and those who make links.
func (t *Tree) findToChange(name string, follow bool, uid uint32) (*place, error) {
	if !t.chown || uid == 0 {
		return t.find(name, follow)
	}
	return t.findBy(name, follow, &trail{})
}

func (t *Tree) findBy(name string, follow bool, via *trail) (*place, error) {
	for range maxLinks + 1 {
		p, err := t.look(name, via)
		if err != nil || !p.found || !follow || p.kind() != unix.S_IFLNK {
			if err == nil && via != nil {
				p.via = *via
			}
			return p, err
		}
		target, err := readLinkAt(p.dir, p.base)
		if err == nil {
			err = via.pass(name, p.dir, p.st)
		}
		p.close()
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(target, "/") {
			// Not cleaned: ".." is relative to where the link really is.
			target = strings.TrimRight(name[:strings.LastIndexByte(name, '/')], "/") + "/" + target
		}
		if len(target) > 4*MaxPath {
			return nil, unix.ENAMETOOLONG
		}
		name = target
	}
	return nil, unix.ELOOP
}

func (t *Tree) look(name string, via *trail) (*place, error) {
	name = strings.TrimRight(name, "/")
	cut := strings.LastIndexByte(name, '/')
	if base := name[cut+1:]; base == "" || base == "." || base == ".." || t.space.top(name) {
		if name == "" {
			name = "/"
		}
		dir, err := t.openDir(name, via)
		if err != nil {
			return nil, err
		}
		p := &place{dir: dir, base: ".", found: true}
		if err := unix.Fstat(int(dir.Fd()), &p.st); err != nil {
			dir.Close()
			return nil, err
		}
		return p, nil
	}
	parent := name[:cut]
	if parent == "" {
		parent = "/"
	}
	dir, err := t.openDir(parent, via)
	if err != nil {
		return nil, err
	}
	p := &place{dir: dir, base: name[cut+1:]}
	switch p.st, err = statAt(dir, p.base); {
	case err == nil:
		p.found = true
	case !errors.Is(err, unix.ENOENT):
		dir.Close()
		return nil, err
	}
	return p, nil
}

// existing is find for a name that must be there.
func (t *Tree) existing(name string, follow bool) (*place, error) {
	return there(t.find(name, follow))
}

func there(p *place, err error) (*place, error) {
	if err == nil && !p.found {
		p.close()
		return nil, unix.ENOENT
	}
	return p, err
}

func statAt(dir *os.File, name string) (st unix.Stat_t, err error) {
	err = unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

func openAt(dir *os.File, name string, flags int, mode uint32) (*os.File, error) {
	for {
		fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_CLOEXEC|unix.O_NOCTTY, mode)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}

// openDirAt opens a directory and nothing else, and follows no symbolic link.
// gVisor follows one all the same when it is told O_DIRECTORY, so the name is
// looked at before, and what was opened after.
func openDirAt(dir *os.File, name string) (*os.File, error) {
	st, err := statAt(dir, name)
	if err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil, unix.ENOTDIR
	}
	d, err := openAt(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Fstat(int(d.Fd()), &st); err != nil {
		d.Close()
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		d.Close()
		return nil, unix.ENOTDIR
	}
	return d, nil
}

func readLinkAt(dir *os.File, name string) (string, error) {
	buf := make([]byte, MaxPath)
	n, err := unix.Readlinkat(int(dir.Fd()), name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
