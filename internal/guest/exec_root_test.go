//go:build root

package guest_test

import (
	"testing"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestSandboxUsers(t *testing.T) {
	everySandbox(t, func(t *testing.T, b box) {
		t.Logf("ready after %v", b.ready)
		for user, want := range map[string]string{
			"":        "1000 1000 1000 /home/sandbox\n",
			"sandbox": "1000 1000 1000 /home/sandbox\n",
			"root":    "0 0 0 /root\n",
			"daemon":  "7 8 8 55 /\n",
			"7":       "7 8 8 55 /\n",
			"4242":    "4242 4242 4242 /\n",
		} {
			r := b.run(t, sandbox.ExecSpec{Shell: "echo $(id -u) $(id -g) $(id -G) $HOME", User: user})
			if string(r.stdout) != want {
				t.Errorf("user %q is %q %q, want %q (%+v)", user, r.stdout, r.stderr, want, r.exit)
			}
		}
	})
}
