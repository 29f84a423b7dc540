//go:build root && long

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"time"

	sdk "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/test/harness"
)

// TestMCPClients has the official SDKs for TypeScript and Python, of both
// kinds of the protocol, do what agents do, in a container that another door
// made.
func TestMCPClients(t *testing.T) {
	i := installInspector(t) // not beside another
	t.Parallel()
	program := harness.Program(t)
	h := newReal(t, harness.Options{})
	url, err := h.start([]string{"--tokens", "me:s3cret"})
	if err != nil {
		t.Fatal(err)
	}
	const session = "container"
	if _, err := sdk.New(url, sdk.WithToken("s3cret")).Create(t.Context(), sdk.CreateOptions{ID: session, Isolation: "container", Runtime: "python", Thread: "clients"}); err != nil {
		t.Fatal(err)
	}
	const modern, older = "2026-07-28", "2025-11-25"
	type transport = object
	http := transport{"url": url + "/mcp", "headers": object{"Authorization": "Bearer s3cret", "Cubby-Thread": "clients"}}
	stdio := transport{"command": program, "args": []string{"mcp", "--thread", "clients"}, "env": object{
		"CUBBY_URL": url, "CUBBY_TOKEN": "s3cret", "PATH": os.Getenv("PATH"), "HOME": t.TempDir(),
	}}
	node := []string{i.node, "../mcp/node/client.mjs", i.dir}
	python := []string{"../../scripts/mcp-python.sh"}
	for _, tt := range []struct {
		name string
		argv []string
		to   transport
	}{
		{"typescript 1 http", append(node, "1", older), http},
		{"typescript 1 stdio", append(node, "1", older), stdio},
		{"typescript 2 http", append(node, "2", modern), http},
		{"typescript 2 stdio", append(node, "2", modern), stdio},
		{"python http", append(python, "auto", modern), http},
		{"python older http", append(python, "legacy", older), http},
		{"python stdio", append(python, "auto", modern), stdio},
	} {
		t.Run(tt.name, func(t *testing.T) {
			to, err := json.Marshal(tt.to)
			if err != nil {
				t.Fatal(err)
			}
			// The first run fetches the SDK.
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			args := append(tt.argv[1:len(tt.argv):len(tt.argv)], session, string(to))
			cmd := exec.CommandContext(ctx, tt.argv[0], args...)
			var said bytes.Buffer
			cmd.Stderr = &said
			cmd.WaitDelay = 10 * time.Second
			if out, err := cmd.Output(); err != nil || string(out) != "ok\n" {
				t.Errorf("%v\n%s%s", err, out, said.String())
			}
		})
	}
	if err := h.stop(); err != nil {
		t.Error(err)
	}
}
