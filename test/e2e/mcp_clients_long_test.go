//go:build root && long

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/test/harness"
)

// inspector runs clients that know nothing of this project: the MCP Inspector
// and the conformance suite.
type inspector struct{ node, dir string }

func installInspector(t *testing.T) inspector {
	t.Helper()
	cmd := exec.Command("../../scripts/inspector.sh")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("install the inspector: %v", err)
	}
	dir := strings.TrimSpace(string(out))
	node, err := filepath.Glob(filepath.Join(dir, "node_modules/node-linux-*/bin/node"))
	if err != nil || len(node) != 1 {
		t.Fatalf("node: %v, %v", node, err)
	}
	return inspector{node[0], dir}
}

// run returns what a client printed and its exit code.
func (i inspector) run(t *testing.T, env []string, script string, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, i.node, append([]string{filepath.Join(i.dir, "node_modules", script)}, args...)...)
	cmd.Env, cmd.Dir = append(env, "PATH="+os.Getenv("PATH"), "HOME="+t.TempDir(), "NO_COLOR=1"), t.TempDir()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s %q: %v", script, args, err)
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		t.Logf("%s %q: %d\n%s", script, args, code, stderr.String())
	}
	return string(out), cmd.ProcessState.ExitCode()
}

const inspectorCLI = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"

// inspected is what the inspector prints of a call.
type inspected struct {
	Result struct {
		Tools             []struct{ Name string }
		StructuredContent object
		IsError           bool
	}
}

func inspectedJSON(t *testing.T, text string) inspected {
	t.Helper()
	var r inspected
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("the inspector printed %.500q: %v", text, err)
	}
	return r
}

func TestInspector(t *testing.T) {
	i := installInspector(t) // not beside another
	t.Parallel()
	program := harness.Program(t)
	h := newReal(t, harness.Options{})
	url, err := h.start([]string{"--tokens", "me:s3cret"})
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string][]string{
		"http":  {url + "/mcp", "--transport", "http", "--header", "Authorization: Bearer s3cret"},
		"stdio": {program, "mcp", "-e", "CUBBY_URL=" + url, "-e", "CUBBY_TOKEN=s3cret", "-e", "XDG_STATE_HOME=" + t.TempDir()},
	} {
		t.Run(name, func(t *testing.T) {
			ask := func(args ...string) (string, int) {
				return i.run(t, nil, inspectorCLI, append(append([]string{"--cli"}, target...), append([]string{"--format", "json"}, args...)...)...)
			}
			out, code := ask("--method", "tools/list", "--strict")
			if r := inspectedJSON(t, out); code != 0 || len(r.Result.Tools) != 18 {
				t.Errorf("tools/list = %d %s", code, out)
			}
			out, code = ask("--method", "tools/call", "--tool-name", "create_session", "--tool-args-json", `{"dependencies":{}}`)
			made := inspectedJSON(t, out).Result.StructuredContent
			if code != 0 || made["success"] != true {
				t.Fatalf("create_session = %d %s", code, out)
			}
			args, err := json.Marshal(object{"session_id": made["session_id"], "code": "sum(range(10))", "timeout": 120})
			if err != nil {
				t.Fatal(err)
			}
			out, code = ask("--method", "tools/call", "--tool-name", "execute_code", "--tool-args-json", string(args))
			ran := inspectedJSON(t, out).Result.StructuredContent
			if result, _ := ran["result"].(object); code != 0 || result["text/plain"] != "45" {
				t.Errorf("execute_code = %d %s", code, out)
			}
			out, code = ask("--method", "tools/call", "--tool-name", "stop_session", "--tool-arg", fmt.Sprint("session_id=", made["session_id"]))
			if code != 0 || inspectedJSON(t, out).Result.StructuredContent["success"] != true {
				t.Errorf("stop_session = %d %s", code, out)
			}
			// 5 is its code for a tool that failed.
			if out, code = ask("--method", "tools/call", "--tool-name", "execute_terminal", "--tool-args-json", `{"session_id":"none","command":"true"}`); code != 5 {
				t.Errorf("a session that is not there: %d %s", code, out)
			}
		})
	}
	if err := h.stop(); err != nil {
		t.Error(err)
	}
}
