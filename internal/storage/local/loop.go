package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/poll"
)

const (
	mountFlags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME
	// noinit_itable: no kernel thread writes out inode tables that read as
	// zeros already.
	mountOptions = "discard,noinit_itable,errors=remount-ro"
)

// mountImage mounts the image of a disk's directory on its mountpoint. What the
// kernel finds wrong with it is repaired as far as that loses nothing.
func mountImage(ctx context.Context, dir string) error {
	image := filepath.Join(dir, imageName)
	f, err := openImage(image)
	if err != nil {
		return err
	}
	faulty, err := checkSuperblock(f)
	_ = f.Close()
	if err != nil {
		return err
	}
	dev, again, err := attach(image)
	if err != nil {
		return err
	}
	if err := mountDevice(ctx, dev, dir, faulty && !again); err != nil || !again {
		return err
	}
	// Alive where nobody sees it, it is as it was: a repair needs its end.
	if broken, err := brokenMounts(dir); err != nil || len(broken) > 0 {
		return errors.Join(errs.E(errs.Unavailable, "the sandbox's disk cannot be written to, and is still in use").
			Hint("try again when everything that used it has ended").RetryAfter(time.Second).Because(err), unmountDir(dir))
	}
	return nil
}

// mountNew is mountImage for an image that nobody can have attached before.
func mountNew(ctx context.Context, dir string) error {
	f, err := openImage(filepath.Join(dir, imageName))
	if err != nil {
		return err
	}
	dev, err := configure(f)
	_ = f.Close()
	if err != nil {
		return err
	}
	return mountDevice(ctx, dev, dir, false)
}

// mountDevice mounts a disk's device and closes it. A file system in which a
// fault was noted is repaired first; the kernel decides whether that was enough.
func mountDevice(ctx context.Context, dev *os.File, dir string, faulty bool) error {
	// The device clears itself at its last close; the mount keeps it.
	defer dev.Close()
	mnt := filepath.Join(dir, mountName)
	var repaired error
	if faulty {
		repaired = repair(ctx, dev.Name())
	}
	err := unix.Mount(dev.Name(), mnt, "ext4", mountFlags, mountOptions)
	if wrongContent(err) && !faulty {
		if repaired = repair(ctx, dev.Name()); repaired == nil {
			err = unix.Mount(dev.Name(), mnt, "ext4", mountFlags, mountOptions)
		}
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errs.KindOf(repaired) == errs.Unsupported:
		return repaired
	case wrongContent(err), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return damaged(errors.Join(err, repaired))
	}
	return errs.E(errs.Unavailable, "the sandbox's disk cannot be mounted").
		Hint("the log of the host's kernel says why").Because(err)
}

// wrongContent says whether the kernel refused a file system for what is in it.
func wrongContent(err error) bool {
	const corrupted, badChecksum = unix.EUCLEAN, unix.EBADMSG
	return errors.Is(err, corrupted) || errors.Is(err, badChecksum) || errors.Is(err, unix.EIO)
}

// mounted says whether the mountpoint of a disk's directory holds a mount.
func mounted(dir string) bool {
	var above, at unix.Stat_t
	return unix.Lstat(dir, &above) == nil &&
		unix.Lstat(filepath.Join(dir, mountName), &at) == nil && above.Dev != at.Dev
}

const (
	busyWait    = 200 * time.Millisecond // for a file operation that is about to end
	releaseWait = 300 * time.Millisecond // for the kernel to let go of a device
	startWait   = 30 * time.Second       // for containers that are just starting, on a busy host
)

// unmountDir unmounts whatever is on the mountpoint of a disk's directory.
// While somebody still has a file open there, the mount only leaves the tree,
// and the kernel finishes when the file is closed.
func unmountDir(dir string) error {
	mnt := filepath.Join(dir, mountName)
	until := time.Now().Add(busyWait)
	for mounted(dir) {
		// A file system that is frozen would stay alive without any mount.
		thawDir(mnt)
		flags := unix.UMOUNT_NOFOLLOW
		if time.Now().After(until) {
			flags |= unix.MNT_DETACH
		}
		switch err := unix.Unmount(mnt, flags); {
		case err == nil, errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		case errors.Is(err, unix.EBUSY):
			time.Sleep(5 * time.Millisecond)
		default:
			return fmt.Errorf("unmount the disk: %w", err)
		}
	}
	return nil
}

// destroyDir unmounts a disk and deletes its directory.
//
// A mount can be alive where nobody sees it: in the mount namespace of a
// container that is just starting, or of any program that unshared its own.
// The file system is shut down first, so that nothing can be written to it any
// more; then the image gives its space back even if its device stays until
// that namespace ends.
func destroyDir(ctx context.Context, dir string) error {
	image := filepath.Join(dir, imageName)
	used := func() (bool, error) {
		loops, err := loopsOf(image)
		return len(loops) > 0, err
	}
	if mounted(dir) {
		mnt := filepath.Join(dir, mountName)
		if file, ok := loopOf(mnt); ok {
			used = func() (bool, error) {
				backing, err := backingBelow(file, image)
				return backing != "", err
			}
		}
		thawDir(mnt)
		shutDown(mnt)
	}
	if err := unmountDir(dir); err != nil {
		return err
	}
	released, err := waitReleased(ctx, releaseWait, used)
	if err != nil {
		return err
	}
	if !released {
		if err := punch(image); err != nil {
			return err
		}
	}
	// These first: what is left without them is no disk, only something to
	// remove, whatever a crash leaves of its snapshots or its files.
	for _, name := range []string{imageName, plainName} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return removeDir(ctx, dir)
}

// waitReleased waits a while until no device uses an image any more.
func waitReleased(ctx context.Context, wait time.Duration, used func() (bool, error)) (bool, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err := poll.Until(waiting, time.Millisecond, 50*time.Millisecond, func() (bool, error) {
		busy, err := used()
		return !busy, err
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		busy, err := used() // in the last pause
		return !busy && err == nil, err
	}
	return err == nil, err
}

// punch frees the blocks of an image.
func punch(image string) error {
	f, err := os.OpenFile(image, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("empty the disk image: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err == nil {
		err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, st.Size())
	}
	if err != nil {
		return fmt.Errorf("empty the disk image: %w", err)
	}
	return nil
}
