package oci

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/oci/cgroup"
	"github.com/cubbyhq/cubby/internal/driver/oci/network"
)

// stageDirs are directories of the host over which a private filesystem can be
// mounted, in the mount namespace of one container's start: everybody may
// traverse them, and nothing that a runtime needs lies below them. The first
// also takes in the temporary files that a runtime leaves when it is killed.
var stageDirs = []string{"/tmp", "/mnt", "/srv", "/media"}

// stage is the place where a container's root filesystem is put together. It
// exists only in the mount namespace of the thread that made it and of what
// that thread started. Paths of the state directory would not do: with a user
// namespace the runtime is nobody to the host and could not traverse them.
type stage struct{ dir string }

func (s stage) path(name string) string { return filepath.Join(s.dir, name) }

// volume is where the volume with a role is placed.
func (s stage) volume(role driver.VolumeRole) string { return s.path(volumeName(role)) }

func volumeName(role driver.VolumeRole) string { return "volume-" + string(role) }

// tree is a part of the host's files that a container's start needs.
type tree struct {
	name, source string
	mapped       bool // its ids are the sandbox's
	// Binds made of a tree inherit these, also where a runtime forgets the ones
	// that it was asked for.
	set uint64
}

// prepare makes the namespaces and mounts that a container starts in. It
// changes the calling thread for good: use it on a [thread.Thread].
func (b bundle) prepare(userns *os.File) (s stage, err error) {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return s, fmt.Errorf("make mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return s, fmt.Errorf("let unmounts in: %w", err)
	}
	// Trees are taken before the stage covers a part of the host.
	trees := []tree{
		{"lower", b.note.Rootfs, true, unix.MOUNT_ATTR_RDONLY},
		{"channel", b.box.channel(), false, unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC},
		{"bundle", b.box.bundle(), false, 0},
		{"runtime", b.box.runtime(), false, 0},
		{"agent", filepath.Dir(b.note.Init.Path), false, unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV},
	}
	if b.note.Runtime.Kind == crun {
		trees = append(trees, tree{crun, b.note.Runtime.Path, false, unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV})
	}
	for _, v := range b.note.Volumes {
		t := tree{volumeName(v.Role), v.Dir, true, unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
		if v.ReadOnly {
			t.set |= unix.MOUNT_ATTR_RDONLY
		}
		trees = append(trees, t)
	}
	fds := make([]int, 0, len(trees))
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	for _, t := range trees {
		fd, err := unix.OpenTree(unix.AT_FDCWD, t.source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return s, fmt.Errorf("take %s: %w", t.name, err)
		}
		fds = append(fds, fd)
		attr := unix.MountAttr{Attr_set: t.set}
		if t.mapped && userns != nil {
			attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
			attr.Userns_fd = uint64(userns.Fd())
		}
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
			return s, fmt.Errorf("set up the mount of %s: %w", t.name, err)
		}
	}
	if b.cgroups.Hybrid != "" {
		// crun refuses hosts on which it sees this one beside version 1.
		if err := unix.Unmount(b.cgroups.Hybrid, unix.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
			return s, fmt.Errorf("hide %s: %w", b.cgroups.Hybrid, err)
		}
	}
	if s, err = openStage(); err != nil {
		return s, err
	}
	if err := os.Mkdir(s.path("rootfs"), 0o755); err != nil {
		return s, err
	}
	for i, t := range trees {
		target := s.path(t.name)
		if t.name == crun {
			err = os.WriteFile(target, nil, 0o755)
		} else {
			err = os.Mkdir(target, 0o755)
		}
		if err != nil {
			return s, err
		}
		if err := unix.MoveMount(fds[i], "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return s, fmt.Errorf("place %s: %w", t.name, err)
		}
	}
	if userns != nil && b.note.Runtime.Kind == runc {
		if err := s.placeUserns(userns); err != nil {
			return s, err
		}
	}
	if err := asOwner(b.note.IDBase, s.overlay); err != nil {
		return s, err
	}
	if err := s.overlayAgent(); err != nil {
		return s, err
	}
	if err := network.Enter(b.network); err != nil {
		return s, err
	}
	if err := s.limitDirs(b.cgroups); err != nil {
		return s, err
	}
	return s, s.mountSysfs()
}

// placeUserns binds a user namespace to a file of the stage. runc joins it in a
// process that has other descriptors than the one that was started.
func (s stage) placeUserns(userns *os.File) error {
	if err := os.WriteFile(s.path(usernsFile), nil, 0o600); err != nil {
		return err
	}
	from := "/proc/self/fd/" + strconv.Itoa(int(userns.Fd()))
	if err := unix.Mount(from, s.path(usernsFile), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("place the user namespace: %w", err)
	}
	return nil
}

const usernsFile = "userns"

func openStage() (stage, error) {
	for _, dir := range stageDirs {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			continue
		}
		if err := unix.Mount("cubby", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m"); err != nil {
			return stage{}, fmt.Errorf("mount stage: %w", err)
		}
		return stage{dir: dir}, nil
	}
	return stage{}, fmt.Errorf("none of %v exists", stageDirs)
}

// overlay mounts the sandbox's root: the image below, its own changes above,
// on its disk. Set-user-id programs have no effect inside anyway
// (no-new-privileges), and device files must have none.
func (s stage) overlay() error {
	root := s.path("rootfs")
	disk := s.volume(driver.VolumeRoot)
	options := "lowerdir=" + s.path("lower") + ",upperdir=" + filepath.Join(disk, "upper") + ",workdir=" + filepath.Join(disk, "work")
	if err := unix.Mount("overlay", root, "overlay", unix.MS_NODEV|unix.MS_NOSUID, options); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	return nil
}

// overlayAgent shows the agent's directory through a file system of its own: of
// a part of the host's, the container would see the path in
// /proc/self/mountinfo. An overlay without an upper directory has two layers.
func (s stage) overlayAgent() error {
	for _, name := range []string{"program", "empty"} {
		if err := os.Mkdir(s.path(name), 0o755); err != nil {
			return err
		}
	}
	options := "lowerdir=" + s.path("agent") + ":" + s.path("empty")
	if err := unix.Mount("overlay", s.path("program"), "overlay", unix.MS_RDONLY|unix.MS_NODEV|unix.MS_NOSUID, options); err != nil {
		return fmt.Errorf("mount the agent: %w", err)
	}
	return nil
}

// program is the agent as the runtime finds it.
func (s stage) program(n note) string {
	return filepath.Join(s.path("program"), filepath.Base(n.Init.Path))
}

// asOwner runs f as the file owner id, with all capabilities. The overlay works
// on its upper directory as whoever mounted it, and there the host's root is
// nobody: the ids of that mount are the sandbox's. It changes the calling
// thread only.
func asOwner(id uint32, f func() error) error {
	if id == 0 {
		return f()
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		return err
	}
	set := func(id uint32) error {
		for _, call := range []uintptr{unix.SYS_SETFSGID, unix.SYS_SETFSUID} {
			if _, _, errno := unix.RawSyscall(call, uintptr(id), 0, 0); errno != 0 {
				return errno
			}
		}
		// Leaving fsuid 0 drops the file capabilities.
		return unix.Capset(&header, &caps[0])
	}
	if err := set(id); err != nil {
		return fmt.Errorf("take the sandbox's ids: %w", err)
	}
	return errors.Join(f(), set(0))
}

// overlayDirs makes the directories of the overlay on the disk.
func (n note) overlayDirs() error {
	for _, name := range []string{"upper", "work"} {
		dir := filepath.Join(n.root(), name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// mountSysfs prepares the container's /sys: of the new network namespace, so
// that it does not show the host's interfaces. The runtime binds it, read-only.
func (s stage) mountSysfs() error {
	sys := s.path("sysfs")
	if err := os.Mkdir(sys, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("sysfs", sys, "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("mount sysfs: %w", err)
	}
	return nil
}

// limitDirs makes the directories below which the container sees the files of
// its own cgroup, see limitMounts.
func (s stage) limitDirs(h cgroup.Hierarchy) error {
	dirs := []string{s.path("cgroup")}
	for controller := range h.V1 {
		dirs = append(dirs, s.path("cgroup/"+controller))
	}
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o555); err != nil {
			return err
		}
	}
	return nil
}
