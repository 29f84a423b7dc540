//go:build race || !root

package e2e_test

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs the scripts against a whole daemon whose sandboxes have no
// walls: what they prove is the API, not the isolation. make test-long runs them with
// the race detector too.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, params([]string{"api", "isolation"}, func(env *testscript.Env) host {
		return &fakeHost{t: env.T().(testing.TB)}
	}, "fake", "container"))
}
