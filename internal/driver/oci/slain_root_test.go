//go:build root

package oci

import (
	"testing"

	"github.com/cubbyhq/cubby/internal/driver"
)

// TestNoSignalEndsTheGuest: whoever runs inside can send PID 1 and its threads every signal
// there is, say of it what only the kernel says of a fault, and set their resource limits to
// nothing. The agent goes on.
func TestNoSignalEndsTheGuest(t *testing.T) {
	for _, w := range walls {
		t.Run(w.runtime, func(t *testing.T) {
			r := armed(t, start(t, w.runtime, testSpec(t, w.isolation)))
			for _, user := range []string{"sandbox", "root"} {
				sent, out := r.attack(user, "slay", 1)
				if sent <= 0 {
					t.Fatalf("as %s: %s", user, out)
				}
				t.Logf("as %s %d were not refused", user, sent)
				r.alive()
				r.phase(driver.PhaseRunning)
			}
			// What keeps the agent's limits from others is the agent's alone.
			if out, _ := r.exec("root", "grep Gid /proc/self/status"); out != "Gid:\t0\t0\t0\t0\n" {
				t.Errorf("root's groups are %q", out)
			}
		})
	}
}
