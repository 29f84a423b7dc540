package oci

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/oci/kernellog"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// The counters of a cgroup say that the kernel killed for want of memory, its
// log says whom. The log is a ring: what is old is gone.

// clockSlack is how far the log's clock and the monotonic one may differ.
const clockSlack = time.Second

// OOMKills implements driver.OOMReader.
func (d *Driver) OOMKills(_ context.Context, h driver.Handle, since time.Time) ([]driver.OOMKill, error) {
	n, err := parseHandle(h)
	if err != nil || n.Isolation == sandbox.GVisor {
		return nil, err
	}
	c := d.cgroups.cgroup(n.UID)
	kills, err := c.readKills()
	if err != nil {
		return nil, err
	}
	files := c.memoryFiles()
	var late []driver.OOMKill
	for _, k := range kills {
		if k.At.After(since.Add(-clockSlack)) {
			k.Files = files
			late = append(late, k)
		}
	}
	return late, nil
}

// readKills returns what the kernel's log has of the cgroup.
func (c cgroup) readKills() ([]driver.OOMKill, error) { return kernellog.Kills("/" + c.path) }

// memoryFiles is the memory of files in memory, 0 when that is not known.
func (c cgroup) memoryFiles() int64 {
	root := c.h.v2
	if root == "" {
		root = c.h.v1["memory"]
	}
	data, err := os.ReadFile(filepath.Join(root, c.path, "memory.stat"))
	if err != nil {
		return 0
	}
	n, _ := keyed(data, "shmem") // not every kernel counts it
	return n
}
