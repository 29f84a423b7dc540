package cgroup

import (
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// favor is the mount option of cgroups that makes moves of processes quick:
// without it each waits until all processors have passed through the scheduler,
// 6 to 10 ms. Since Linux 6.0; Documentation/admin-guide/cgroup-v2.rst.
const favor = "favordynmods"

// hostNamespace is the first cgroup namespace, whose number is part of the
// kernel's interface (CGROUP_NS_INIT_INO, include/uapi/linux/nsfs.h).
const hostNamespace = "cgroup:[4026531835]"

// FavorMoves makes the host move processes between cgroups without waiting for
// all of its processors, in every hierarchy and for every program, for a little
// more work in each fork and exit. It reports whether that is so now; a host
// that cannot is no error.
//
// The option belongs to the unified hierarchy, beside which it holds for those of
// version 1 too. It is set through a mount that is attached nowhere, so nothing of
// the host's mounts changes. From Linux 6.18 on it stays until the
// host boots; before that, mount -o remount,nofavordynmods takes it back.
func FavorMoves() (bool, error) {
	// A cgroup namespace has no say in it, and the kernel does not tell it so.
	if namespace, err := os.Readlink("/proc/self/ns/cgroup"); err != nil || namespace != hostNamespace {
		return false, nil //nolint:nilerr // a kernel without such namespaces has no such option
	}
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup2"))
	if err != nil {
		return false, err
	}
	// Setting options replaces all of them, so those of a hierarchy that cannot be
	// seen here stay as they are.
	if len(mounts) == 0 {
		return false, nil
	}
	options := superOptions(mounts[0].VFSOptions)
	if slices.Contains(options, favor) {
		return true, nil
	}
	fs, err := unix.Fsopen("cgroup2", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return false, unsupported(err)
	}
	defer unix.Close(fs)
	for _, option := range append(options, favor) {
		if err := unix.FsconfigSetFlag(fs, option); err != nil {
			return false, unsupported(err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return false, unsupported(err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return false, unsupported(err)
	}
	return true, unix.Close(mount)
}

// superOptions are the options of a mounted unified hierarchy that are its own.
func superOptions(vfs string) []string {
	return slices.DeleteFunc(strings.Split(vfs, ","), func(o string) bool {
		return o == "" || o == "rw" || o == "ro"
	})
}

// unsupported hides what a host says that does not know the option or the calls.
func unsupported(err error) error {
	for _, cannot := range []error{unix.EINVAL, unix.ENOSYS, unix.EPERM, unix.EACCES, unix.ENODEV} {
		if errors.Is(err, cannot) {
			return nil
		}
	}
	return err
}
