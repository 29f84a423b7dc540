package oci

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/agent"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// How long the agent may take beyond the grace that it gives to commands, and
// how long a root filesystem may take to be saved.
const (
	shutdownMargin = 5 * time.Second
	saveLimit      = 5 * time.Minute
)

// Stop implements driver.Driver. gVisor keeps a sandbox's system files in its
// own memory and on the disk in a form of its own; they are saved here. A
// container's are on the disk at all times.
func (d *Driver) Stop(ctx context.Context, h driver.Handle, grace time.Duration) error {
	n, err := d.places.parse(h)
	if err != nil {
		return err
	}
	b := d.box(n.UID)
	rec, found, err := b.record()
	if err != nil {
		return err
	}
	if !found {
		return d.rest(ctx, b)
	}
	if err := d.adopt(ctx, h); errors.Is(err, errs.WrongState) || errors.Is(err, errs.NotFound) {
		// It does not run: what is left of it goes.
		return d.rest(ctx, b)
	} else if err != nil {
		return err
	}
	d.mu.Lock()
	r := d.runs[n.UID]
	d.mu.Unlock()
	if r == nil {
		return d.clear(ctx, n.UID)
	}
	r.setStopping(true)
	rec.Stopping = true
	if err := b.setRecord(rec); err != nil {
		r.setStopping(false) // it runs on, and its end will be a death
		return exhausted(err)
	}
	if err := d.shutDown(ctx, r, grace); err != nil && !r.ended() {
		d.log.Warn("the agent did not end its commands", "box", n.UID, "err", err)
	}
	if n.Isolation == sandbox.GVisor && !r.ended() {
		err := d.save(ctx, n, r.process.Program(), b.saved())
		switch {
		case err != nil && ctx.Err() != nil && !r.ended():
			// By its note whoever comes next carries the stop out, and saves them.
			return errs.E(errs.Unavailable, "the stop was cut off before the system files were saved").Because(err)
		case err != nil:
			d.log.Error("system files were not saved: the sandbox will start with those of the save before", "box", n.UID, "err", err)
		}
	}
	return d.clear(ctx, n.UID)
}

// rest is clear for what shall not be woken.
func (d *Driver) rest(ctx context.Context, b box) error {
	if err := d.clear(ctx, b.uid); err != nil {
		return err
	}
	return b.memory().Forget()
}

// shutDown asks the agent to end everything but itself.
func (d *Driver) shutDown(ctx context.Context, r *run, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, grace+shutdownMargin)
	defer cancel()
	go func() {
		select {
		case <-r.dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	return agent.New(r.line().Dial, &r.agent).Shutdown(ctx, grace)
}

// clear ends everything that runs of a sandbox and removes what only a run
// needs. What the sandbox is made of stays. It does not matter how far a start
// had come.
func (d *Driver) clear(ctx context.Context, uid sandbox.UID) error {
	b, group := d.box(uid), d.cgroups.Group(uid)
	runtimeID := b.runtimeID()
	d.locks.Forget(string(uid))
	d.mu.Lock()
	r := d.runs[uid]
	d.mu.Unlock()
	if r != nil {
		r.setStopping(true)
		// The agent first: it must not see its commands being killed one by one
		// and report that as their own ends.
		r.process.Kill()
	}
	if err := group.Kill(ctx); err != nil {
		return err
	}
	if r != nil {
		// A process leaves its cgroup a moment before it ends.
		if err := r.awaitEnd(ctx); err != nil {
			return err
		}
		r.release()
		d.mu.Lock()
		delete(d.runs, uid)
		d.mu.Unlock()
	}
	if err := group.Remove(ctx); err != nil {
		return err
	}
	d.namespaces.Ended(uid)
	unmountNetns(b.runtime()) // of a run that an earlier version began
	unmountAll(b.channel())
	// Where the path of its directory is too long for a socket, runsc puts
	// its own here. That of a sentry is the sandbox's that it became.
	for _, dir := range []string{"/run", "/tmp"} {
		if _, err := os.Stat(b.runtime()); err == nil {
			_ = os.Remove(filepath.Join(dir, "runsc-"+runtimeID+".sock"))
		}
	}
	for _, path := range []string{b.runtime(), b.socket(), b.bundle()} {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	// A command of the runtime may still write there for a daemon that was killed.
	if err := b.awaitRuntime(ctx); err != nil {
		return err
	}
	if err := b.tidy(); err != nil {
		return err
	}
	// Last: as long as it is there, a run may have left something.
	if err := os.Remove(b.runFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// unmountNetns removes the mount with which runsc keeps an empty network
// namespace for its file servers.
func unmountNetns(dir string) { unmountAll(filepath.Join(dir, "null-netns")) }

func unmountAll(path string) {
	for unix.Unmount(path, unix.MNT_DETACH) == nil {
	}
}

// Destroy implements driver.Driver. The disk is its owner's and stays as it
// is; a Create that gets it again starts with a fresh root filesystem.
func (d *Driver) Destroy(ctx context.Context, h driver.Handle) error {
	n, err := d.places.parse(h)
	if err != nil {
		return err
	}
	return d.Sweep(ctx, n.UID)
}

// Sweep implements driver.Driver.
func (d *Driver) Sweep(ctx context.Context, uid sandbox.UID) error {
	if _, err := sandbox.ParseUID(string(uid)); err != nil {
		return err
	}
	if err := d.clear(ctx, uid); err != nil {
		return err
	}
	b := d.box(uid)
	// Its memory goes whole: what is left of a sweep that fails is not asleep.
	if err := b.memory().Retire(); err != nil {
		return err
	}
	d.namespaces.Drop(uid)
	err := os.RemoveAll(b.dir)
	if err == nil {
		return nil
	}
	// Something is mounted below that no part of this package puts there.
	mounts, mountErr := mountinfo.GetMounts(mountinfo.PrefixFilter(b.dir))
	if mountErr != nil {
		return errors.Join(err, mountErr)
	}
	slices.Reverse(mounts)
	for _, m := range mounts {
		_ = unix.Unmount(m.Mountpoint, unix.MNT_DETACH)
	}
	return os.RemoveAll(b.dir)
}
