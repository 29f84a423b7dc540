package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/cli"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// TestMCP: standard output has nothing but the protocol, and the conversation
// of the first run is that of the next.
func TestMCP(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	state := t.TempDir()
	run := func(args ...string) (names []string) {
		t.Helper()
		var out, log bytes.Buffer
		code := cli.Main(context.Background(), cli.Env{
			Args: append([]string{"mcp"}, args...), Environ: []string{"CUBBY_URL=" + d.URL, "XDG_STATE_HOME=" + state},
			Stdin: strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n" +
				`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n" + `{"jsonrpc":"2.0","id":2,"method":"tools/list"}` + "\n"),
			Stdout: &out, Stderr: &log,
		})
		if code != 0 {
			t.Errorf("exit code %d: %s", code, log.String())
		}
		for line := range strings.Lines(out.String()) {
			var reply struct {
				Result struct{ Tools []struct{ Name string } }
			}
			if err := json.Unmarshal([]byte(line), &reply); err != nil {
				t.Errorf("standard output has %q", line)
			}
			for _, tool := range reply.Result.Tools {
				names = append(names, tool.Name)
			}
		}
		for _, want := range []string{"create_session", "execute_code", "execute_terminal", "import_files", "export_files", "stop_session"} {
			if !slices.Contains(names, want) {
				t.Errorf("the tools are %q, without %s", names, want)
			}
		}
		return names
	}
	if all, six := run("--thread", "mine"), run("--thread", "mine", "--tools", "six"); len(all) != 18 || len(six) != 6 {
		t.Errorf("all tools are %q, the six %q", all, six)
	}
	file := filepath.Join(state, "cubby/mcp-thread.json")
	run("--thread", "mine")
	if _, err := os.Stat(file); err == nil {
		t.Error("a conversation was made although one was named")
	}
	run()
	first, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(first), `"thread_id":"mcp-`) {
		t.Fatalf("kept is %q, %v", first, err)
	}
	run()
	if second, err := os.ReadFile(file); err != nil || string(second) != string(first) {
		t.Errorf("the next run keeps %q, %v, want %q", second, err, first)
	}
}
