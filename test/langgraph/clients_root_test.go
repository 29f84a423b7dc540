//go:build root

// Package langgraph_test lets programs that nobody here wrote use the agent as
// LangGraph's platform, and compares it with LangGraph's own server.
package langgraph_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
	"github.com/cubbyhq/cubby/internal/llm/llmtest"
)

// install returns a directory with packages of test/langgraph and copies of its programs.
func install(t *testing.T, which string, files ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../../scripts/langgraph-packages.sh", which)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("fetch the packages: %v", err)
	}
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(strings.TrimSpace(string(out)), "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type":"module"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// rule is what the model says: see test/langgraph/script.json.
type rule struct {
	Prompt    string
	Results   bool
	Text      string
	Status    int
	Delay     int
	ToolCalls []json.RawMessage
}

// model starts a server that speaks a provider's protocol and says what the
// script says.
func model(t *testing.T, packages string) string {
	t.Helper()
	text, err := os.ReadFile("script.json")
	if err != nil {
		t.Fatal(err)
	}
	var rules []rule
	if err := json.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	fixtures := make([]map[string]any, len(rules))
	for i, r := range rules {
		match, response := map[string]any{"userMessage": r.Prompt, "hasToolResult": r.Results}, map[string]any{}
		if r.Text != "" {
			response["content"] = r.Text
		}
		if r.Status != 0 {
			response = map[string]any{"error": map[string]any{"message": r.Text, "type": "invalid_request_error"}, "status": r.Status}
		}
		if r.ToolCalls != nil {
			response["toolCalls"] = r.ToolCalls
		}
		response["usage"] = map[string]any{"prompt_tokens": 10, "completion_tokens": 5}
		fixtures[i] = map[string]any{"match": match, "response": response}
		if r.Delay != 0 {
			fixtures[i]["latency"] = r.Delay
		}
	}
	return llmtest.Aimock(t, packages, fixtures, "-c", "8")
}

// daemon starts a daemon whose agent asks the scripted model.
func daemon(t *testing.T, packages string, root bool) string {
	t.Helper()
	return daemontest.Start(t, daemontest.Options{
		Environ: map[string]string{"OPENAI_API_KEY": "sk-none", "OPENAI_BASE_URL": model(t, packages) + "/v1"},
		Config: func(c *config.Config) {
			c.AgentModel, c.AgentAtRoot, c.WebhookNetworks = "openai/gpt-4o", root, []string{"127.0.0.0/8"}
		},
	}).URL
}

// TestLangGraphClients: the official SDKs of two versions, useStream, and the one for
// Python do with the agent what they do with LangGraph's platform.
func TestLangGraphClients(t *testing.T) {
	t.Parallel()
	packages := install(t, "node", "node/client.mjs", "node/usestream.mjs")
	url := daemon(t, packages, true)
	run := func(name string, args ...string) {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
			cmd.Dir = packages
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), name+": ok") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	for _, version := range []string{"1.8", "1.12"} {
		run("sdk "+version, "node", "client.mjs", version, url+"/agent")
	}
	run("sdk 1.8 at the root", "node", "client.mjs", "1.8", url, "at the root")
	run("useStream", "node", "usestream.mjs", url+"/agent")
	python := exec.CommandContext(t.Context(), "../../scripts/langgraph-packages.sh", "python")
	python.Stderr = os.Stderr
	dir, err := python.Output()
	if err != nil {
		t.Fatal(err)
	}
	client, err := filepath.Abs("python/client.py")
	if err != nil {
		t.Fatal(err)
	}
	run("python", filepath.Join(strings.TrimSpace(string(dir)), "bin/python"), "-B", client, url+"/agent")
}

// TestGuide runs the program of docs/langgraph.md as it stands there, but for where
// the daemon is and what is asked.
func TestGuide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/langgraph.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(guide), "```js\n")
	text, _, found := strings.Cut(text, "```")
	packages := install(t, "node")
	url := daemon(t, packages, false)
	program := strings.NewReplacer("@langchain/langgraph-sdk", "langgraph-sdk-1.12", "http://127.0.0.1:9090", url, "Plot a sine curve.", "cubby-tool").Replace(text)
	if !found || strings.Contains(program, "9090") || !strings.Contains(program, "cubby-tool") {
		t.Fatalf("the guide has no such program: %s", text)
	}
	if err := os.WriteFile(filepath.Join(packages, "guide.mjs"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "guide.mjs")
	cmd.Dir = packages
	if out, err := cmd.Output(); err != nil || !strings.HasPrefix(string(out), "I will stop it.") || !strings.HasSuffix(strings.TrimSpace(string(out)), "It was not there.") {
		t.Errorf("%v\n%s", err, out)
	}
}
