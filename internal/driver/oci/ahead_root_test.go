//go:build root

package oci

import (
	"slices"
	"testing"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// TestAddressSpacesOfASentry: those of its agent and of the first command were there before
// anybody needed them.
func TestAddressSpacesOfASentry(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	k := r.awaitSentry()
	ahead, err := r.d.cgroups.Group(k.uid).Procs()
	r.do("Procs", err)
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
