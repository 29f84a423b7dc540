//go:build root

package e2e_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// TestGeneratedClients: clients that are generated from api/openapi.json
// compile, and what they get of a daemon is what their types say.
func TestGeneratedClients(t *testing.T) {
	t.Parallel()
	d := daemontest.Start(t, daemontest.Options{})
	out, err := exec.CommandContext(t.Context(), "../../scripts/openapi-clients.sh", d.URL).CombinedOutput()
	if text := string(out); err != nil || !strings.Contains(text, "node: ok") || !strings.Contains(text, "python: ok") {
		t.Fatalf("openapi-clients.sh: %v\n%s", err, out)
	}
}
