//go:build root

package rpc_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// What agentbox's README shows, with gRPC's own clients, on a port of its own.
func TestOfficialClients(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{Config: func(c *config.Config) { c.GRPCListen = "127.0.0.1:0" }})
	for _, client := range []string{"python", "node"} {
		t.Run(client, func(t *testing.T) {
			// The first run fetches the client.
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			out, err := exec.CommandContext(ctx, "../../../scripts/grpc-clients.sh", client, strings.TrimPrefix(d.URL, "http://")).CombinedOutput()
			if err != nil || strings.TrimSpace(string(out)) != "ok" {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
