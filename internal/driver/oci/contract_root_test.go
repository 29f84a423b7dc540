//go:build root

package oci

import (
	"path/filepath"
	"testing"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/drivertest"
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

func TestContract(t *testing.T) {
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
					OwnRoot: true, KeepsMemory: true,
					DamageSnapshot: func(t *testing.T, name sandbox.UID) {
						damageByte(t, filepath.Join(m.last.snapshotOf(name).Image(), "pages.img"))
					},
				}
			})
		})
	}
}
