//go:build long

package tasks

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/task"
)

const repository = "../../.."

// packages installs the agents and the model and returns where they are.
func packages(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(repository, "scripts/agent-packages.sh"))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// model starts a server that answers as the fixtures say, for work in a directory,
// and returns its address.
func model(t *testing.T, dir, cwd string) string {
	t.Helper()
	fixtures := t.TempDir()
	names, err := filepath.Glob(filepath.Join(repository, "test/agents/fixtures/*.json"))
	if err != nil || len(names) == 0 {
		t.Fatal(err, names)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(fixtures, filepath.Base(name)), bytes.ReplaceAll(text, []byte("@CWD@"), []byte(cwd)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	port := freePort(t)
	cmd := exec.Command("node", filepath.Join(dir, "node_modules/@copilotkit/aimock/dist/cli.js"), "-p", strconv.Itoa(port), "-f", fixtures)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the model: %s", tail(log.String(), 4<<10))
		}
	})
	address := "http://127.0.0.1:" + strconv.Itoa(port)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/health", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			res.Body.Close()
			return address
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Fatalf("the model does not answer: %v\n%s", err, log.String())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

const cliKey = "sk-cubby-0123456789"

// cli is an agent with the model that the fixtures answer for.
type cli struct{ name, model string }

func (c cli) env(address string) map[string]string {
	switch c.name {
	case "claude":
		return map[string]string{"ANTHROPIC_API_KEY": cliKey, "ANTHROPIC_BASE_URL": address}
	case "gemini":
		return map[string]string{"GEMINI_API_KEY": cliKey, "GOOGLE_GEMINI_BASE_URL": address}
	}
	return map[string]string{"OPENAI_API_KEY": cliKey, "OPENAI_BASE_URL": address + "/v1"}
}

func clis() []cli {
	return []cli{{"opencode", "opencode-model"}, {"claude", "claude-model"}, {"codex", "codex-model"}, {"gemini", "gemini-model"}}
}

// start starts a task of an agent.
func (c cli) start(t *testing.T, dir, address string, order task.Order) *running {
	t.Helper()
	env := c.env(address)
	agent, err := task.Known(c.name, c.model, env)
	if err != nil {
		t.Fatal(err)
	}
	order.Agent = agent
	if order.Seconds == 0 {
		order.Seconds = 120
	}
	bin := filepath.Join(dir, "node_modules")
	env["PATH"] = filepath.Join(bin, ".bin") + ":" + filepath.Join(bin, "opencode-linux-x64/bin") + ":" + os.Getenv("PATH")
	env["NO_PROXY"], env["no_proxy"] = "127.0.0.1", "127.0.0.1"
	return supervise(t, order, env)
}

// Each agent writes a file, runs a command and says so.
func TestAgentsWork(t *testing.T) {
	dir := packages(t)
	for _, c := range clis() {
		t.Run(c.name, func(t *testing.T) {
			cwd := filepath.Join(t.TempDir(), "project")
			r := c.start(t, dir, model(t, dir, cwd), task.Order{Prompt: "Please do the cubby-work.", Cwd: cwd})
			result := r.result()
			if result.Status != task.Succeeded || result.StopReason != "end_turn" || result.Session == "" {
				t.Errorf("result: %+v", result)
			}
			if want := []string{"hello.txt", "made.txt"}; !slices.Equal(result.FilesChanged, want) {
				t.Errorf("files changed: %q, want %q", result.FilesChanged, want)
			}
			if text, err := os.ReadFile(filepath.Join(cwd, "hello.txt")); err != nil || string(text) != "hello from the agent\n" {
				t.Errorf("hello.txt: %q, %v", text, err)
			}
			if want := "The file is written and the command has run."; result.FinalMessage != want {
				t.Errorf("final message: %q, want %q", result.FinalMessage, want)
			}
			if u := result.Tokens; u.Input < 1200 || u.Output < 34 {
				t.Errorf("tokens: %+v", u)
			}
			if all := r.printed(); strings.Contains(all, cliKey) {
				t.Errorf("the key is in the output: %s", all)
			}
		})
	}
}
