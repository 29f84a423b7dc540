package oci

import (
	"context"
	"slices"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/oci/cgroup"
	"github.com/cubbyhq/cubby/internal/driver/oci/filelocks"
	"github.com/cubbyhq/cubby/internal/driver/oci/kernellog"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// The counters of a cgroup say that the kernel killed for want of memory, its
// log says whom. The log is a ring: what is old is gone.

// clockSlack is how far the log's clock and the monotonic one may differ.
const clockSlack = time.Second

// OOMKills implements driver.OOMReader.
func (d *Driver) OOMKills(_ context.Context, h driver.Handle, since time.Time) ([]driver.OOMKill, error) {
	n, err := d.places.parse(h)
	if err != nil || n.Isolation == sandbox.GVisor {
		return nil, err
	}
	c := d.cgroups.Group(n.UID)
	kills, err := readKills(c)
	if err != nil {
		return nil, err
	}
	files := c.MemoryFiles()
	var late []driver.OOMKill
	for _, k := range kills {
		if k.At.After(since.Add(-clockSlack)) {
			k.Files = files
			late = append(late, k)
		}
	}
	for _, k := range d.locks.Kills(string(n.UID)) {
		if k.At.After(since) {
			late = append(late, driver.OOMKill{At: k.At, Process: k.Process, PID: k.PID, Locks: k.Locks})
		}
	}
	slices.SortStableFunc(late, func(a, b driver.OOMKill) int { return a.At.Compare(b.At) })
	return late, nil
}

// guardLocks bounds the file locks of a running container: they are memory of
// the host that its cgroup does not count. gVisor's are its own memory.
func (d *Driver) guardLocks(n note, agent int) {
	if n.Isolation == sandbox.Container {
		d.locks.Guard(string(n.UID), agent, d.cgroups.Group(n.UID).Procs)
	}
}

// MaxFileLocks is how many record locks a container may hold.
const MaxFileLocks = filelocks.Most

// CountsFileLocks is nil where the host shows how many file locks there are, so
// that those of containers are bounded.
func CountsFileLocks() error {
	if _, err := filelocks.Held(); err != nil {
		return errs.E(errs.Unsupported, "the kernel does not show its file locks: those of containers are not bounded").
			Hint("use a kernel with CONFIG_SLUB_DEBUG, or one that shows /proc/locks").Because(err)
	}
	return nil
}

// readKills returns what the kernel's log has of a cgroup.
func readKills(c cgroup.Group) ([]driver.OOMKill, error) { return kernellog.Kills("/" + c.Path) }
