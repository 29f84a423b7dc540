//go:build root && long

package e2e_test

import (
	"bytes"
	"context"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/packages/packagestest"
	"github.com/cubbyhq/cubby/test/harness"
)

// TestGRPCClients does agentbox's snippets with the official clients for Python
// and Node.
func TestGRPCClients(t *testing.T) {
	t.Parallel()
	x := packagestest.New(t, packagestest.Options{Address: elsewhere + ":0"})
	h := newReal(t, harness.Options{})
	url, err := h.start([]string{"--pip-index-url", x.PyPI})
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(url, "http://")
	for _, language := range []string{"python", "node"} {
		t.Run(language, func(t *testing.T) {
			// The first run fetches the client.
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			var did, said bytes.Buffer
			cmd := exec.CommandContext(ctx, "../../scripts/grpc-clients.sh", language, address, "cubbydemo")
			cmd.Stdout, cmd.Stderr = &did, &said
			cmd.WaitDelay = 10 * time.Second
			if err := cmd.Run(); err != nil {
				t.Errorf("%v\n%s", err, said.String())
			}
			if got := strings.Fields(did.String()); !slices.Equal(got, agentboxSnippets) {
				t.Errorf("it did %v, want %v", got, agentboxSnippets)
			}
		})
	}
	if err := h.stop(); err != nil {
		t.Error(err)
	}
}
