package oci

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (h driver.Handle, err error) {
	if err := check(spec); err != nil {
		return nil, err
	}
	n := noteOf(spec)
	if n.Runtime, n.Init, err = d.support(spec.Isolation); err != nil {
		return nil, err
	}
	b := d.box(spec.UID)
	if err := os.Mkdir(b.dir, 0o700); errors.Is(err, fs.ErrExist) {
		return nil, errs.E(errs.Conflict, "sandbox exists already")
	} else if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.namespaces.drop(spec.UID)
			_ = os.RemoveAll(b.dir)
		}
	}()
	// The disk may have been another sandbox's: its files stay, the changes to
	// a root filesystem belong to the image that they were made on.
	if err := os.RemoveAll(filepath.Join(spec.Disk, "root")); err != nil {
		return nil, err
	}
	if err := b.lay(n, &d.authorities); err != nil {
		return nil, err
	}
	if spec.Isolation == sandbox.Container {
		// Without a user namespace, where a kernel or one of the filesystems
		// cannot map ids, a container's root is the host's root without its
		// capabilities: less, but what containers commonly are.
		ids, err := d.namespaces.fresh()
		switch {
		case scarce(err):
			return nil, err
		case err != nil:
			d.log.Warn("a container begins without a user namespace", "box", spec.UID, "err", err)
		case mapsIDs(ids.file, append(n.disks(), spec.Rootfs)...):
			n.IDBase = ids.base
			d.namespaces.keep(spec.UID, ids)
		default:
			d.namespaces.discard(ids)
		}
	}
	h, err = n.handle()
	if err != nil {
		return nil, err
	}
	// The copy is for what looks at all sandboxes, and env values are secrets.
	n.Env = nil
	short, err := n.handle()
	if err != nil {
		return nil, err
	}
	return h, os.WriteFile(b.noteFile(), short, 0o600)
}

// scarce reports whether a namespace is not there for a moment: that is no
// reason for a container without one.
func scarce(err error) bool {
	return errors.Is(err, errs.Exhausted) || errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) ||
		errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// disks are where the sandbox's files are on the host.
func (n note) disks() []string {
	if n.Shared == "" {
		return []string{n.Disk}
	}
	return []string{n.Disk, n.Shared}
}

// lay makes the directories of a sandbox. It may be called again.
func (b box) lay(n note, a *authorities) error {
	// The sandbox's disk is mounted by its owner; a path that is not there
	// must not be made on the host's disk instead.
	for _, disk := range n.disks() {
		if _, err := os.Stat(filepath.Join(disk, "workspace")); err != nil {
			return errs.E(errs.Unavailable, "the sandbox's disk is not in place").Because(err)
		}
	}
	for _, dir := range []string{b.dir, b.bundle(), b.runtime(), b.channel()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(n.Disk, "root"), 0o700); err != nil {
		return err
	}
	if err := n.machineFiles(); err != nil {
		return err
	}
	return n.layAuthorities(a)
}

func check(spec driver.Spec) error {
	if _, err := sandbox.ParseUID(string(spec.UID)); err != nil {
		return err
	}
	l := spec.Limits
	switch {
	case spec.Isolation != sandbox.GVisor && spec.Isolation != sandbox.Container:
		return errs.E(errs.Unsupported, "isolation %q is not known here", spec.Isolation)
	case l.MemoryBytes <= 0 || l.CPUs <= 0 || l.PIDs <= 0 || l.DiskBytes <= 0 || l.OpenFiles <= 0:
		return errs.E(errs.Invalid, "a limit is missing")
	case l.MemoryBytes < minMemory:
		return errs.E(errs.Invalid, "memory limit of %d bytes is too small", l.MemoryBytes).Hint("give at least %d", int64(minMemory))
	case len(spec.Hostname) > 64:
		return errs.E(errs.Invalid, "host name is longer than 64 bytes")
	case !filepath.IsAbs(spec.Rootfs) || !filepath.IsAbs(spec.Disk):
		return errs.E(errs.Invalid, "rootfs and disk need absolute paths")
	case spec.Shared != "" && !filepath.IsAbs(spec.Shared):
		return errs.E(errs.Invalid, "the shared disk needs an absolute path")
	}
	paths := []string{spec.Rootfs, filepath.Join(spec.Disk, "workspace"), filepath.Join(spec.Disk, "home")}
	if spec.Shared != "" {
		for _, name := range []string{"workspace", "outputs", "uploads"} {
			paths = append(paths, filepath.Join(spec.Shared, name))
		}
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			return errs.E(errs.Invalid, "the sandbox's files are not in place").Because(err)
		}
	}
	return nil
}

// minMemory is where the agent and a shell still fit.
const minMemory = sandbox.MinMemoryBytes
