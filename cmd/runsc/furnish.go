package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/specutils"
)

// furnish gives a container that stands the files of a sandbox: bind mounts in the
// place of those of nobody that its file server has, which opens them when the container
// begins, and stores in the place of those that its kernel holds.
func (o orders) furnish(c *container.Container, conf *config.Config, line *sentryLine) error {
	spec, err := specutils.ReadSpec(o.Bundle, conf)
	if err != nil {
		return fmt.Errorf("reading spec: %w", err)
	}
	if err := sameKind(c.Spec, spec); err != nil {
		return err
	}
	stores, err := openStores(c.ID, o.Stores)
	defer func() {
		for _, f := range stores {
			_ = f.Close()
		}
	}()
	if err != nil {
		return err
	}
	if err := remount(c.GoferPid.Load(), served(c, spec)); err != nil {
		return err
	}
	c.Spec.Mounts = spec.Mounts
	return line.give(stores)
}

// sameKind reports why a container cannot become what a specification says.
func sameKind(has, wants *specs.Spec) error {
	if has.Root.Path != wants.Root.Path || len(has.Mounts) != len(wants.Mounts) {
		return errors.New("the container is of another kind")
	}
	for i, m := range has.Mounts {
		w := wants.Mounts[i]
		if m.Type != w.Type || m.Destination != w.Destination || !slices.Equal(m.Options, w.Options) {
			return fmt.Errorf("the container has %s, %s, %q where %s, %s, %q belongs", m.Destination, m.Type, m.Options, w.Destination, w.Type, w.Options)
		}
	}
	return nil
}

// served are the mounts of a specification that the container's file server
// serves.
func served(c *container.Container, spec *specs.Spec) (mounts []specs.Mount) {
	confs := c.GoferMountConfs[1:] // the first is that of the root
	for _, m := range spec.Mounts {
		if !specutils.HasMountConfig(m) {
			continue
		}
		if confs[0].ShouldUseLisafs() {
			mounts = append(mounts, m)
		}
		confs = confs[1:]
	}
	return mounts
}

// openStores makes the files in which gVisor keeps changes, each through a mount of its
// own that is attached nowhere, so that the host's can be unmounted while the
// sandbox runs. They have no names and go with the sandbox.
func openStores(id string, dirs []string) (files []*os.File, err error) {
	for _, dir := range dirs {
		f, err := openStore(dir, ".gvisor.filestore."+id)
		if err != nil {
			return files, fmt.Errorf("make a file in %s: %w", dir, err)
		}
		files = append(files, f)
	}
	return files, nil
}

func openStore(dir, name string) (*os.File, error) {
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer unix.Close(tree)
	fd, err := unix.Openat(tree, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	if err := unix.Unlinkat(tree, name, 0); err != nil {
		_ = f.Close()
		return nil, err
	}
	pgalloc.IMAWorkAroundForMemFile(f.Fd()) // as upstream does while it is empty
	return f, nil
}

// goferRoot is where upstream's file server has the root filesystem, in its mount
// namespace.
const goferRoot = "/root"

// remount mounts what mounts bind at their destinations below the root of a file
// server, where others are mounted, which go. On top of those they would go with the
// directories of nobody: what is mounted on a directory that is removed is unmounted.
func remount(gofer int, mounts []specs.Mount) error {
	namespace, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", gofer))
	if err != nil {
		return err
	}
	defer namespace.Close()
	var trees []int
	defer func() {
		for _, t := range trees {
			_ = unix.Close(t)
		}
	}()
	for _, m := range mounts {
		t, err := openBind(m)
		if err != nil {
			return fmt.Errorf("bind %s: %w", m.Source, err)
		}
		trees = append(trees, t)
	}
	return inNamespace(int(namespace.Fd()), func() error {
		// Whatever links there are, they lead nowhere else.
		if err := unix.Chroot(goferRoot); err != nil {
			return os.NewSyscallError("chroot", err)
		}
		for _, m := range slices.Backward(mounts) {
			if err := unix.Unmount(m.Destination, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
				return fmt.Errorf("unmount %s: %w", m.Destination, err)
			}
		}
		for i, m := range mounts {
			if err := unix.MoveMount(trees[i], "", unix.AT_FDCWD, m.Destination, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
				return fmt.Errorf("mount %s: %w", m.Destination, err)
			}
		}
		return nil
	})
}

// inNamespace runs f in a mount namespace, on a thread of its own.
func inNamespace(namespace int, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends there
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return os.NewSyscallError("unshare", err)
			}
			if err := unix.Setns(namespace, unix.CLONE_NEWNS); err != nil {
				return os.NewSyscallError("setns", err)
			}
			return f()
		}()
	}()
	return <-done
}

// openBind is what a mount binds, attached nowhere, with the options that upstream
// gives it.
func openBind(m specs.Mount) (int, error) {
	tree, err := unix.OpenTree(unix.AT_FDCWD, m.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID, Propagation: unix.MS_SLAVE}
	flags := specutils.OptionsToFlags(m.Options)
	for flag, set := range map[uint32]uint64{
		unix.MS_RDONLY: unix.MOUNT_ATTR_RDONLY, unix.MS_NODEV: unix.MOUNT_ATTR_NODEV, unix.MS_NOEXEC: unix.MOUNT_ATTR_NOEXEC,
	} {
		if flags&flag != 0 {
			attr.Attr_set |= set
		}
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		_ = unix.Close(tree)
		return -1, os.NewSyscallError("mount_setattr", err)
	}
	return tree, nil
}
