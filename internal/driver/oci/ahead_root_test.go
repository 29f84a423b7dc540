//go:build root

package oci

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// TestASentryIsAhead: before anybody needs it, its kernel has left /proc, and there are the
// address spaces of the agent and of the first command.
func TestASentryIsAhead(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	k := r.awaitSentry()
	ahead, err := r.d.cgroups.Group(k.uid).Procs()
	r.do("Procs", err)
	kernels := 0
	for _, pid := range ahead {
		if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); !bytes.HasPrefix(name, []byte("runsc-sandbox")) {
			continue
		}
		kernels++
		if mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid)); err != nil || bytes.Contains(mounts, []byte(" - proc ")) {
			t.Errorf("the kernel still has /proc, %v:\n%s", err, mounts)
		}
	}
	if kernels != 1 {
		t.Errorf("%d of %v are kernels", kernels, ahead)
	}
	c := r.another(testSpec(t, sandbox.GVisor))
	c.becameOf(k)
	if out, _ := c.exec("root", "echo out"); out != "out\n" {
		t.Errorf("a command printed %q", out)
	}
	pids, err := c.d.cgroups.Group(c.spec.UID).Procs()
	r.do("Procs", err)
	anew := slices.DeleteFunc(slices.Clone(pids), func(pid int) bool { return slices.Contains(ahead, pid) })
	// An address space is two, and has a third when two of its threads run at once.
	if len(anew) > 2 {
		t.Errorf("processes %v of %v are none of the sentry's %v", anew, pids, ahead)
	}
}
