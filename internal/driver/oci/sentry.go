package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver/oci/cgroup"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// sentry is a kernel of gVisor, with its file server, that no sandbox has yet. Instead
// of a sandbox's directories it has some of nobody, see cmd/runsc, in a
// box and a cgroup of its own. No program of a guest ever ran in it. It ends with
// this process.
type sentry struct {
	uid   sandbox.UID // of its box, and the runtime's name of it for ever
	shape shape
	cmd   *exec.Cmd

	orders *os.File // what the runtime reads
	boot   *os.File // what the agent will read

	ended chan struct{} // closed when the runtime has ended
	err   error         // of the runtime; written before ended is closed
}

// shape is what a sentry was made for: it can become that of every sandbox of the same.
type shape struct {
	runtime string // digest
	// The directory of the image, which may be made again under the same name.
	rootfs        string
	device, inode uint64
	limits        sandbox.Limits
	volumes       string
	authorities   string
}

// shape is what a sandbox needs of a sentry.
func (n note) shape() (shape, error) {
	s := shape{runtime: n.Runtime.Digest, rootfs: n.Rootfs, limits: n.Limits}
	if n.Isolation != sandbox.GVisor || s.runtime == "" {
		return s, fmt.Errorf("isolation %s by %s is not started ahead", n.Isolation, n.Runtime.Path)
	}
	var st unix.Stat_t
	if err := unix.Stat(n.Rootfs, &st); err != nil {
		return s, &os.PathError{Op: "stat", Path: n.Rootfs, Err: err}
	}
	s.device, s.inode = st.Dev, st.Ino
	for _, v := range n.Volumes {
		s.volumes += fmt.Sprintf("%s:%v,", v.Role, v.ReadOnly)
	}
	if n.Authorities != "" {
		s.authorities = fmt.Sprintf("directory:%v", n.AuthoritiesDir)
	}
	return s, nil
}

func (k *sentry) hasEnded() bool {
	select {
	case <-k.ended:
		return true
	default:
		return false
	}
}

// release lets go of a sentry: one that got no orders ends.
func (k *sentry) release() {
	for _, f := range []*os.File{k.orders, k.boot} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// makeSentry starts a sentry for sandboxes like one. After an error what there is of
// it is the caller's to remove.
func (d *Driver) makeSentry(ctx context.Context, k *sentry, n note) (err error) {
	if k.shape, err = n.shape(); err != nil {
		return err
	}
	b := d.box(k.uid)
	n.UID = k.uid
	if err := b.layNobodys(&n); err != nil {
		return err
	}
	place, err := d.takePlace(n)
	if err != nil {
		return err
	}
	defer place.leave()
	bun := d.bundle(n)
	bun.nobodys = true
	if err := bun.write(); err != nil {
		return err
	}
	// The options of both beginnings: it is not known yet which it will be.
	args := append(bun.beginFlags(), restoreFlag, "ready", "--bundle="+b.bundle(), "--orders=3", "--said=4", string(k.uid))
	k.cmd = exec.Command(n.Runtime.Path, args...)
	said, err := k.start(d.cgroups.Group(k.uid), place, n.root())
	if err != nil {
		return err
	}
	defer said.Close()
	if err := said.SetReadDeadline(time.Now().Add(sentryTime)); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = said.SetReadDeadline(time.Now()) })()
	if _, err := io.ReadFull(said, make([]byte, 1)); err != nil {
		_ = k.cmd.Process.Kill()
		<-k.ended
		return fmt.Errorf("%s: %w: %w", n.Runtime.Kind, err, b.complaint())
	}
	d.cgroups.Group(k.uid).Score(d.oom)
	return nil
}

// sentryTime is far more than it takes to make a sentry, or to have it begin.
const sentryTime = 20 * time.Second

// sameMounts reports whether gVisor treats nobody's directories as it treats a sandbox's:
// how it mounts one depends on the filesystem that it is on.
func (d *Driver) sameMounts(n note) bool {
	nobodys, err := treatment(d.cfg.StateDir)
	return err == nil && !slices.ContainsFunc(n.dirs(), func(dir string) bool {
		of, err := treatment(dir)
		return err != nil || of != nobodys
	})
}

// treatment is what of a filesystem's type gVisor looks at (AdjustMountOptions of
// runsc/cmd/sandboxsetup).
func treatment(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	switch st.Type {
	case unix.OVERLAYFS_SUPER_MAGIC, unix.NFS_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC:
		return st.Type, nil
	}
	return 0, nil
}

// layNobodys makes the directories and files that stand for a sandbox's, and has the
// note name them.
func (b box) layNobodys(n *note) error {
	n.Volumes = slices.Clone(n.Volumes)
	for i, v := range n.Volumes {
		n.Volumes[i].Dir = b.path(filepath.Join("nobodys", string(v.Role)))
	}
	// First of all: a box without a note could need every program that is unpacked.
	if err := errors.Join(os.Mkdir(b.dir, 0o700), b.setNote(*n)); err != nil {
		return err
	}
	inRoot := func(name string) string { return filepath.Join(n.root(), name) }
	for _, dir := range append(n.dirs(), b.bundle(), b.runtime(), b.channel(), n.authoritiesDir(), inRoot(overlayName), inRoot(tmpName)) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	for _, name := range append(slices.Clone(machineFiles), authoritiesFile) {
		if err := os.WriteFile(inRoot(filepath.Join("etc", name)), nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// start starts the runtime, which says a byte when the sentry stands. Its descriptors are
// 3 (orders), 4 (what it says) and storesFD.
func (k *sentry) start(group cgroup.Group, place *place, stores string) (said *os.File, err error) {
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	in, boot, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	k.boot, theirs = boot, append(theirs, in)
	read, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	k.orders, theirs = orders, append(theirs, read)
	held, err := os.Open(stores)
	if err != nil {
		return nil, err
	}
	theirs = append(theirs, held)
	said, say, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	theirs = append(theirs, say)
	k.cmd.Stdin, k.cmd.ExtraFiles = in, []*os.File{read, say, held}
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	k.cmd.Env = runtimeEnv()
	if err := place.start(group, k.cmd); err != nil {
		_ = said.Close()
		return nil, err
	}
	go func() {
		k.err = k.cmd.Wait()
		close(k.ended)
	}()
	return said, nil
}
