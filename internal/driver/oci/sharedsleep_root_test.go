//go:build root

package oci

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Whoever shares a disk with a sandbox that sleeps may remove what is open in its
// memory. That can never be woken, which a wake says, or every use of the sandbox
// would try it again for ever; from its files the sandbox begins.
func TestWakeAfterOthersRemovedItsFiles(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"an open file":                     func(dir string) error { return os.Remove(filepath.Join(dir, "open")) },
		"a directory that a program is in": func(dir string) error { return os.RemoveAll(dir) },
	} {
		for how, ahead := range map[string]bool{"": false, " with a sentry": true} {
			t.Run(name+how, func(t *testing.T) {
				r := start(t, runsc, testSpec(t, sandbox.GVisor))
				r.exec("sandbox", "mkdir sub; echo hello > sub/open; cd sub; setsid sleep 1000 < open > /dev/null 2>&1 &")
				r.do("Sleep", r.d.Sleep(r.ctx, r.h))
				if ahead {
					r.awaitSentry()
				}
				dir := driver.VolumeDir(r.spec.Volumes, driver.VolumeWorkspace)
				r.do("remove it", change(filepath.Join(dir, "sub")))
				if err := r.d.Wake(r.ctx, r.h); !errors.Is(err, errs.NotFound) {
					t.Errorf("Wake = %v, want not found", err)
				}
				r.phase(driver.PhaseAsleep)
				r.do("Start", r.d.Start(r.ctx, r.h))
				r.exec("sandbox", "true")
			})
		}
	}
}
