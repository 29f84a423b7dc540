package filetree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// copyAcross copies one entry with all below it, keeping modes, owners and
// times. It is the copy that moves between file systems need.
func (t *Tree) copyAcross(ctx context.Context, from *os.File, base string, to *os.File, name string, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if depth == 0 {
		return unix.ELOOP
	}
	st, err := statAt(from, base)
	if err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if err := unix.Mkdirat(int(to.Fd()), name, 0o700); err != nil {
			return err
		}
		src, err := openDirAt(from, base)
		if err != nil {
			return err
		}
		defer src.Close()
		dst, err := openDirAt(to, name)
		if err != nil {
			return err
		}
		defer dst.Close()
		names, err := src.Readdirnames(4096)
		for ; err == nil; names, err = src.Readdirnames(4096) {
			for _, n := range names {
				if err := t.copyAcross(ctx, src, n, dst, n, depth-1); err != nil {
					return err
				}
			}
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
	case unix.S_IFREG:
		p := &place{dir: from, base: base, st: st}
		src, _, err := p.openRegular(base, unix.O_RDONLY)
		if err != nil {
			return err
		}
		defer src.Close()
		dst, err := openAt(to, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return err
		}
		defer dst.Close()
		if err := t.copySolid(ctx, dst, src, st.Size); err != nil {
			return err
		}
		if err := dst.Sync(); err != nil {
			return err
		}
	case unix.S_IFLNK:
		target, err := readLinkAt(from, base)
		if err != nil {
			return err
		}
		if err := unix.Symlinkat(target, int(to.Fd()), name); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%w", notRegular(base))
	}
	return keepMeta(to, name, &st, t.chown)
}

// keepMeta gives an entry the owner, mode and time of st.
func keepMeta(dir *os.File, name string, st *unix.Stat_t, chown bool) error {
	fd := int(dir.Fd())
	if chown {
		if err := unix.Fchownat(fd, name, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		if err := unix.Fchmodat(fd, name, st.Mode&0o7777, 0); err != nil {
			return err
		}
	}
	return unix.UtimesNanoAt(fd, name, []unix.Timespec{st.Mtim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}
