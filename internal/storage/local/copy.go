package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/hostdisk"
)

// copier copies files and trees below the directory of disks, where only what
// is allocated takes space: by sharing blocks where the host's file system can,
// else byte by byte with holes left out. It never takes the host below half its
// reserve.
type copier struct {
	ctx  context.Context
	room func() error
	buf  []byte
	// staging holds a name for each file with several links, by its inode, while
	// a tree is copied.
	staging *os.File
	staged  map[uint64]bool
}

const (
	copyBuffer = 1 << 20
	// roomEvery is how much is copied between two looks at the host's space.
	roomEvery = 16 << 20
)

func (d *Disks) newCopier(ctx context.Context) *copier {
	return &copier{ctx: ctx, room: d.roomToCopy}
}

// roomToCopy is errs.Exhausted once a copy has to end.
func (d *Disks) roomToCopy() error {
	s, err := hostdisk.Measure(d.cfg.Dir)
	if err != nil {
		return err
	}
	if s.Free < d.cfg.Reserve/2 || d.isFrozen() {
		return hostFull()
	}
	return nil
}

// file copies the content of one file into an empty one.
func (c *copier) file(to, from *os.File) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	err := unix.IoctlFileClone(int(to.Fd()), int(from.Fd()))
	if err == nil {
		return nil
	}
	if !cannotClone(err) {
		return err
	}
	st, err := from.Stat()
	if err != nil {
		return err
	}
	if err := to.Truncate(st.Size()); err != nil {
		return err
	}
	for at := int64(0); at < st.Size(); {
		begin, end, err := nextData(from, at, st.Size())
		if err != nil || begin >= st.Size() {
			return err
		}
		if err := c.extent(to, from, begin, end); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// cannotClone says that blocks cannot be shared here, and that copying can still
// do.
func cannotClone(err error) bool {
	for _, e := range []error{unix.EOPNOTSUPP, unix.ENOTTY, unix.EXDEV, unix.EINVAL, unix.ENOSYS, unix.ETXTBSY} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// nextData is where the next data of a file begins and ends; at the size when
// only a hole follows. Where the file system does not tell, all of it is data.
func nextData(f *os.File, at, size int64) (begin, end int64, err error) {
	begin, err = unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, size, nil
	case errors.Is(err, unix.EINVAL):
		return at, size, nil
	case err != nil:
		return 0, 0, err
	}
	if end, err = unix.Seek(int(f.Fd()), begin, unix.SEEK_HOLE); err != nil {
		return 0, 0, err
	}
	return begin, end, nil
}

// extent copies a piece of a file to the same place in another.
func (c *copier) extent(to, from *os.File, begin, end int64) error {
	if c.buf == nil {
		c.buf = make([]byte, copyBuffer)
	}
	for at, looked := begin, begin-roomEvery; at < end; {
		if at-looked >= roomEvery {
			if err := errors.Join(c.ctx.Err(), c.room()); err != nil {
				return err
			}
			looked = at
		}
		n, err := from.ReadAt(c.buf[:min(int64(len(c.buf)), end-at)], at)
		if n == 0 && err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if _, err := to.WriteAt(c.buf[:n], at); err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

// copyImage copies a disk's image.
func (c *copier) copyImage(to, from string) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	return c.file(dst, src)
}

// copyDisk makes an unfinished disk with the content of the one in a directory,
// which nobody changes while hold runs what it is given. The copy is on the
// host's disk when it returns: writers do not wait for that. After an error
// nothing is left.
func (d *Disks) copyDisk(ctx context.Context, from string, hold func(func() error) error) (dir string, err error) {
	if dir, err = d.copyUnsynced(ctx, from, hold); err == nil {
		err = d.synced(ctx, dir)
	}
	return dir, err
}

// synced brings a copy to the host's disk. After an error nothing is left of it.
func (d *Disks) synced(ctx context.Context, dir string) error {
	err := copyFailed(ctx, syncCopy(dir))
	if err != nil {
		d.discard(dir)
	}
	return err
}

// copyUnsynced is copyDisk without the wait for the host's disk.
func (d *Disks) copyUnsynced(ctx context.Context, from string, hold func(func() error) error) (dir string, err error) {
	dir, err = os.MkdirTemp(filepath.Join(d.cfg.Dir, poolName), unfinished)
	if err != nil {
		return "", fmt.Errorf("copy a disk: %w", err)
	}
	if err := copyFailed(ctx, hold(func() error { return d.fillCopy(ctx, dir, from) })); err != nil {
		d.discard(dir)
		return "", err
	}
	return dir, nil
}

// copyFailed classifies why a copy was not made.
func copyFailed(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, unix.ENOSPC):
		return hostFull()
	default:
		return fmt.Errorf("copy a disk: %w", err)
	}
}

// unheld is for what nobody can change.
func unheld(copies func() error) error { return copies() }

func (d *Disks) fillCopy(ctx context.Context, dir, from string) error {
	c := d.newCopier(ctx)
	mnt := filepath.Join(dir, mountName)
	if err := os.Mkdir(mnt, 0o700); err != nil {
		return err
	}
	if !isPlain(from) {
		return c.copyImage(filepath.Join(dir, imageName), filepath.Join(from, imageName))
	}
	if err := c.copyImage(filepath.Join(dir, plainName), filepath.Join(from, plainName)); err != nil {
		return err
	}
	return c.tree(mnt, filepath.Join(from, mountName), filepath.Join(dir, "links"))
}

// syncCopy brings a copy to the host's disk.
func syncCopy(dir string) error {
	if isPlain(dir) {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
	}
	return errors.Join(syncDir(filepath.Join(dir, imageName)), syncDir(dir))
}

// isPlain says that the disk in a directory has no image.
func isPlain(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, plainName))
	return err == nil
}

// syncDir brings the names in a directory, or a file, to the host's disk.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
