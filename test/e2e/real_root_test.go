//go:build root

package e2e_test

import (
	"slices"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cubbyhq/cubby/test/harness"
)

// TestReal runs the scripts against the program that users run, with real
// sandboxes on the image "base": those that depend on the isolation with both.
func TestReal(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"gvisor", "container"} {
		dirs := []string{"isolation", "real"}
		if slices.Contains(anyIsolation, isolation) {
			dirs = append(dirs, "api")
		}
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			runReal(t, isolation, dirs)
		})
	}
}

func runReal(t *testing.T, isolation string, dirs []string) {
	t.Helper()
	daemons := newPool(t, 2)
	testscript.Run(t, params(dirs, func(env *testscript.Env) host {
		return &lent{t: env.T().(testing.TB), pool: daemons}
	}, "real", isolation))
}

// realHost runs the program as a child process.
type realHost struct{ *harness.Daemon }

func newReal(t testing.TB, o harness.Options) realHost {
	t.Helper()
	return realHost{harness.New(t, o)}
}

func (h realHost) start(flags []string) (url string, err error) {
	err = h.Start(flags...)
	return h.URL, err
}

func (h realHost) stop() error { return h.Stop() }
func (h realHost) kill() error { return h.Kill() }

// environ tells scripts where the program and its data are.
func (h realHost) environ() map[string]string {
	return map[string]string{"CUBBY": h.Program, "DATA": h.Dir}
}
