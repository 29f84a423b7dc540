//go:build root

package oci

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/drivertest"
	"github.com/cubbyhq/cubby/internal/driver/oci/pidfd"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// walls are the isolations with each runtime that can give them.
var walls = []struct {
	runtime   string
	isolation sandbox.Isolation
}{
	{runsc, sandbox.GVisor},
	{crun, sandbox.Container},
	{runc, sandbox.Container},
}

// forgetsDeaths reports whether this kernel (before Linux 6.15) does not tell how a process
// ended that its parent has reaped, which is what becomes of a sandbox's sooner or later.
func forgetsDeaths(t *testing.T) bool {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := pidfd.Open(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.Kill()
	_ = cmd.Wait() // it says that it was killed
	_, known := p.ExitStatus()
	return !known
}

func TestContract(t *testing.T) {
	forgets := forgetsDeaths(t)
	for _, w := range walls {
		t.Run(w.runtime, func(t *testing.T) {
			t.Parallel()
			drivertest.Run(t, func(t *testing.T) (driver.Driver, drivertest.Env) {
				m := newMachine(t, w.runtime)
				t.Cleanup(func() { m.left(t) })
				return m.open(t), drivertest.Env{
					Spec:    func(t *testing.T) driver.Spec { return testSpec(t, w.isolation) },
					Reopen:  func(t *testing.T) driver.Driver { return m.open(t) },
					Crash:   func(t *testing.T, uid sandbox.UID) { m.crash(t, uid) },
					OwnRoot: true, KeepsMemory: true, ForgetsDeaths: forgets,
					DamageSnapshot: func(t *testing.T, name sandbox.UID) {
						damageByte(t, filepath.Join(m.last.snapshotOf(name).Image(), "pages.img"))
					},
				}
			})
		})
	}
}
