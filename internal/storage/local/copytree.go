package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tree copies all that is below one directory into an empty one: owners, modes,
// times, links, device nodes, holes, and the extended attributes of files and
// directories. Nobody changes the source meanwhile. Its depth is not bounded,
// because guests made it, so no path is ever put together: each name is looked
// up in its open directory, and the way back is "..".
//
// staging is the name of a directory that does not exist yet; in it each file
// with several links keeps a name until all of them are made.
func (c *copier) tree(to, from, staging string) error {
	if err := os.Mkdir(staging, 0o700); err != nil {
		return err
	}
	var err error
	if c.staging, err = os.Open(staging); err != nil {
		return err
	}
	c.staged = make(map[uint64]bool)
	err = c.topLevel(to, from)
	err = errors.Join(err, c.staging.Close())
	if err != nil {
		return err
	}
	return os.RemoveAll(staging) // one level, of names that were made here
}

func (c *copier) topLevel(to, from string) error {
	p := &pair{}
	defer p.close()
	var err error
	if p.from, err = openDir(unix.AT_FDCWD, from); err != nil {
		return err
	}
	if p.to, err = openDir(unix.AT_FDCWD, to); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(p.from.Fd()), &st); err != nil {
		return err
	}
	if err := c.contents(p); err != nil {
		return err
	}
	return dress(p.to, p.from, &st)
}

// pair is a directory and its copy, both open.
type pair struct{ from, to *os.File }

func (p *pair) close() {
	for _, f := range []*os.File{p.from, p.to} {
		if f != nil {
			f.Close()
		}
	}
}

var errMoved = errors.New("a directory was moved while its tree was copied")

// inodes are those of both directories. A tree is on one file system.
func (p *pair) inodes() (from, to uint64, err error) {
	var f, t unix.Stat_t
	err = errors.Join(unix.Fstat(int(p.from.Fd()), &f), unix.Fstat(int(p.to.Fd()), &t))
	return f.Ino, t.Ino, err
}

// step opens other directories as they are seen from the present ones.
func (p *pair) step(name string) (*pair, error) {
	from, err := openDir(int(p.from.Fd()), name)
	if err != nil {
		return nil, err
	}
	to, err := openDir(int(p.to.Fd()), name)
	if err != nil {
		from.Close()
		return nil, err
	}
	return &pair{from, to}, nil
}

func openDir(at int, name string) (*os.File, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a directory: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// contents copies what is in the pair's directory. However deep it goes, it
// comes back to where it began, and has no more than two directories open on
// either side.
func (c *copier) contents(p *pair) error {
	names, err := p.from.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := errors.Join(c.ctx.Err(), c.entry(p, name)); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) directory(p *pair, name string, st *unix.Stat_t) error {
	if err := unix.Mkdirat(int(p.to.Fd()), name, 0o700); err != nil {
		return err
	}
	from, to, err := p.inodes()
	if err != nil {
		return err
	}
	child, err := p.step(name)
	if err != nil {
		return err
	}
	p.close()
	*p = *child
	if err := c.contents(p); err != nil {
		return err
	}
	// The way back first: the mode may keep even the owner out.
	above, err := p.step("..")
	if err != nil {
		return err
	}
	// Whoever moves a directory meanwhile must not lead the copy out of the tree.
	if f, t, err := above.inodes(); err != nil || f != from || t != to {
		above.close()
		return errors.Join(err, errMoved)
	}
	err = dress(p.to, p.from, st)
	p.close()
	*p = *above
	return err
}

func (c *copier) entry(p *pair, name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(int(p.from.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return c.directory(p, name, &st)
	}
	inode := strconv.FormatUint(st.Ino, 10)
	if c.staged[st.Ino] {
		return unix.Linkat(int(c.staging.Fd()), inode, int(p.to.Fd()), name, 0)
	}
	if err := c.leaf(p, name, &st); err != nil {
		return err
	}
	if st.Nlink > 1 {
		c.staged[st.Ino] = true
		return unix.Linkat(int(p.to.Fd()), name, int(c.staging.Fd()), inode, 0)
	}
	return nil
}

// leaf copies what is not a directory.
func (c *copier) leaf(p *pair, name string, st *unix.Stat_t) error {
	to := int(p.to.Fd())
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return c.regular(p, name, st)
	case unix.S_IFLNK:
		target, err := readLink(p.from, name, st.Size)
		if err != nil {
			return err
		}
		if err := unix.Symlinkat(target, to, name); err != nil {
			return err
		}
	default:
		if err := unix.Mknodat(to, name, st.Mode, int(st.Rdev)); err != nil {
			return err
		}
		if err := unix.Fchmodat(to, name, st.Mode&0o7777, 0); err != nil {
			return err
		}
	}
	if err := give(unix.Fchownat(to, name, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW)); err != nil {
		return err
	}
	return unix.UtimesNanoAt(to, name, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

func (c *copier) regular(p *pair, name string, st *unix.Stat_t) (err error) {
	// Not blocking: what is no regular file any more must not hold the copy up.
	fd, err := unix.Openat(int(p.from.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	src := os.NewFile(uintptr(fd), name)
	defer src.Close()
	fd, err = unix.Openat(int(p.to.Fd()), name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	dst := os.NewFile(uintptr(fd), name)
	defer func() { err = errors.Join(err, dst.Close()) }()
	if err := c.file(dst, src); err != nil {
		return err
	}
	return dress(dst, src, st)
}

// dress gives an open copy the owner, attributes, mode and times of what it was
// made from: in this order, because a change of owner drops capabilities, and a
// mode can forbid attributes.
func dress(to, from *os.File, st *unix.Stat_t) error {
	fd := int(to.Fd())
	if err := give(unix.Fchown(fd, int(st.Uid), int(st.Gid))); err != nil {
		return err
	}
	if err := copyXattrs(to, from); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, st.Mode&0o7777); err != nil {
		return err
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), []unix.Timespec{st.Atim, st.Mtim}, 0)
}

// give is nil also where this process may not give files away: then everything
// belongs to who runs it, as it did in the source.
func give(err error) error {
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		return nil
	}
	return err
}

func readLink(dir *os.File, name string, size int64) (string, error) {
	b := make([]byte, max(size, 0)+1)
	for {
		n, err := unix.Readlinkat(int(dir.Fd()), name, b)
		if err != nil {
			return "", err
		}
		if n < len(b) {
			return string(b[:n]), nil
		}
		b = make([]byte, 2*len(b))
	}
}

// copyXattrs copies extended attributes. Those that the kernel or its security
// modules give to every file by themselves are not taken along where that is
// not allowed.
func copyXattrs(to, from *os.File) error {
	names, err := xattr(func(b []byte) (int, error) { return unix.Flistxattr(int(from.Fd()), b) })
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(names), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		value, err := xattr(func(b []byte) (int, error) { return unix.Fgetxattr(int(from.Fd()), name, b) })
		if err != nil {
			return err
		}
		err = unix.Fsetxattr(int(to.Fd()), name, value, 0)
		own := strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "system.posix_acl_")
		if err != nil && (own || os.Geteuid() == 0 && !errors.Is(err, unix.EOPNOTSUPP)) {
			return err
		}
	}
	return nil
}

// xattr asks for something whose size is not known before.
func xattr(ask func([]byte) (int, error)) ([]byte, error) {
	for {
		n, err := ask(nil)
		if err != nil {
			return nil, err
		}
		b := make([]byte, n)
		if n == 0 {
			return b, nil
		}
		if n, err = ask(b); !errors.Is(err, unix.ERANGE) {
			return b[:max(n, 0)], err
		}
	}
}
