//go:build root

package e2e_test

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cubbyhq/cubby/test/harness"
)

// TestReal runs all scripts against the program that users run, with real
// sandboxes of both isolations on the image "base".
func TestReal(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			testscript.Run(t, params([]string{"api", "real"}, func(env *testscript.Env) host {
				return newReal(env.T().(testing.TB), harness.Options{})
			}, "real", isolation))
		})
	}
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
