package oci

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/oci/truststore"
	"github.com/cubbyhq/cubby/internal/driver/oci/userns"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/filetree"
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
			d.namespaces.Drop(spec.UID)
			_ = os.RemoveAll(b.dir)
		}
	}()
	if err := empty(ctx, n.root()); err != nil {
		return nil, err
	}
	if err := b.lay(n, &d.authorities); err != nil {
		return nil, err
	}
	if spec.Isolation == sandbox.Container {
		// Without a user namespace, where a kernel or one of the filesystems
		// cannot map ids, a container's root is the host's root without its
		// capabilities: less, but what containers commonly are.
		ids, err := d.namespaces.Fresh()
		switch {
		case scarce(err):
			return nil, err
		case err != nil:
			d.log.Warn("a container begins without a user namespace", "box", spec.UID, "err", err)
		case userns.MapsIDs(ids.File, append(n.dirs(), n.Rootfs)...):
			n.IDBase = ids.Base
			d.namespaces.Keep(spec.UID, ids)
		default:
			d.namespaces.Discard(ids)
		}
	}
	h, err = d.places.handle(n)
	if err != nil {
		return nil, err
	}
	return h, b.setNote(n)
}

// setNote writes the copy of the handle for what looks at all sandboxes, without
// the values of env, which are secrets.
func (b box) setNote(n note) error {
	short, err := b.places.short(n)
	if err != nil {
		return err
	}
	return b.replace(b.noteFile(), short)
}

func (p places) short(n note) (driver.Handle, error) {
	n.Env = nil
	return p.handle(n)
}

// setPrograms notes the programs of a run that is about to begin. The handle goes
// on to say those of the first one.
func (b box) setPrograms(n note) error {
	noted, err := b.note()
	if err != nil {
		return err
	}
	if noted.Init == n.Init && noted.Runtime == n.Runtime {
		return nil
	}
	return b.setNote(n)
}

// ofRun is a note with the programs of the run that there is.
func (b box) ofRun(n note) (note, error) {
	noted, err := b.note()
	if err == nil && noted.Init.Path != "" {
		n.Init, n.Runtime = noted.Init, noted.Runtime
	}
	return n, err
}

// takePrograms gives a note the programs of the run whose memory was kept, which
// the memory's note has. Memories of earlier versions have none.
func (p places) takePrograms(n *note, kept []byte) error {
	if kept == nil {
		return nil
	}
	of, err := p.parse(kept)
	if err == nil {
		n.Init, n.Runtime = of.Init, of.Runtime
	}
	return err
}

// scarce reports whether a namespace is not there for a moment: that is no
// reason for a container without one.
func scarce(err error) bool {
	return errors.Is(err, errs.Exhausted) || errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) ||
		errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// dirs are the directories of all volumes.
func (n note) dirs() []string {
	var dirs []string
	for _, v := range n.Volumes {
		dirs = append(dirs, v.Dir)
	}
	return dirs
}

// lay makes the directories of a sandbox. It may be called again.
func (b box) lay(n note, authorities *truststore.Files) error {
	// Volumes are mounted by their owner; a path that is not there must not be
	// made on the host's disk instead.
	for _, dir := range n.dirs() {
		if _, err := os.Stat(dir); err != nil {
			return errs.E(errs.Unavailable, "the sandbox's disk is not in place").Because(err)
		}
	}
	for _, dir := range []string{b.dir, b.bundle(), b.runtime(), b.channel()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if err := n.layMachineFiles(); err != nil {
		return err
	}
	return n.layAuthorities(authorities)
}

// check reports what cannot be carried out here.
func check(spec driver.Spec) error {
	if err := spec.Validate(); err != nil {
		return err
	}
	if spec.Limits.MemoryBytes < minMemory {
		return errs.E(errs.Invalid, "memory limit of %d bytes is too small", spec.Limits.MemoryBytes).Hint("give at least %d", int64(minMemory))
	}
	paths := []string{spec.Image.Dir}
	for _, v := range spec.Volumes {
		paths = append(paths, v.Dir)
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

// empty removes what is in a directory.
func empty(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := removeGuests(ctx, filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// removeGuests removes what a guest may have made. [os.RemoveAll] would hold a descriptor
// for each level of it, and there can be as many as the disk has inodes.
func removeGuests(ctx context.Context, path string) error {
	err := filetree.Whole(filetree.Options{}).Remove(ctx, path, true)
	if errors.Is(err, errs.NotFound) {
		return nil
	}
	return err
}
