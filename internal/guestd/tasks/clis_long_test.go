//go:build long

package tasks

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

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
	cmd := exec.Command("node", filepath.Join(dir, "node_modules/@copilotkit/aimock/dist/cli.js"), "-p", "0", "-f", fixtures)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 1)
	log := tailWriter{limit: 4 << 10}
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(said)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			_, _ = fmt.Fprintln(&log, lines.Text())
			if _, address, ok := strings.Cut(lines.Text(), "listening on "); ok {
				said <- address
			}
		}
	})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		reading.Wait()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the model: %s", log.String())
		}
	})
	address, ok := <-said
	if !ok {
		t.Fatal("the model did not start")
	}
	return address
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
	return c.startIn(t, dir, address, t.TempDir(), order)
}

func (c cli) startIn(t *testing.T, dir, address, home string, order task.Order) *running {
	t.Helper()
	env := c.env(address)
	env["HOME"] = home
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
	return begin(t, order, env)
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

// What a model's server does wrong ends the task as failed, says why, and leaves
// nothing running.
func TestAgentsFail(t *testing.T) {
	dir := packages(t)
	address := model(t, dir, "/")
	for _, c := range clis() {
		for _, tt := range []struct {
			prompt  string
			seconds float64
			reason  string // "" is either: some try again for longer than a test
			message string
		}{
			{"cubby-429", 12, "", ""},
			{"cubby-500", 12, "", ""},
			{"cubby-garbage", 12, "", ""},
			{"cubby-half", 12, "", ""},
			{"cubby-400", 60, task.ReasonAgent, "cubby says: no such model"},
			{"cubby-nothing", 60, task.ReasonAgent, "said nothing"},
		} {
			t.Run(c.name+"/"+tt.prompt, func(t *testing.T) {
				r := c.start(t, dir, address, task.Order{Prompt: tt.prompt, Seconds: tt.seconds})
				result := r.result()
				t.Logf("%s %s: %s", result.FailureReason, result.StopReason, result.ErrorMessage)
				if result.Status != task.Failed || result.ErrorMessage == "" {
					t.Errorf("result: %+v", result)
				}
				if reason := result.FailureReason; reason != tt.reason && (tt.reason != "" || reason != task.ReasonAgent && reason != task.ReasonTimeout) {
					t.Errorf("failure reason: %q, want %q", reason, tt.reason)
				}
				if !strings.Contains(result.ErrorMessage, tt.message) {
					t.Errorf("error message: %q, want %q in it", result.ErrorMessage, tt.message)
				}
				if strings.Contains(r.printed(), cliKey) {
					t.Errorf("the key is in the output: %s", r.printed())
				}
				r.gone()
			})
		}
	}
}

// hostilePrompt is in the fixtures letter by letter: no other prompt is answered.
const hostilePrompt = "cubby-echo $(touch hacked) `touch hacked`; touch hacked & | > hacked < x \"double\" 'single' \\ * ? [a] {b,c} ~ ! # % ^ -- --help ü€😀\nsecond line"

// A prompt arrives as it was written, and no shell reads it.
func TestAgentsReadEveryCharacter(t *testing.T) {
	dir := packages(t)
	address := model(t, dir, "/")
	for _, c := range clis() {
		t.Run(c.name, func(t *testing.T) {
			r := c.start(t, dir, address, task.Order{Prompt: hostilePrompt})
			result := r.result()
			if result.Status != task.Succeeded || result.FinalMessage != "I have read it." || len(result.FilesChanged) > 0 {
				t.Errorf("result: %+v", result)
			}
		})
	}
}

// A session goes on in further tasks, also in one after a task that was cancelled
// while the model answered, and says nothing twice.
func TestAgentsResumeAndAreCancelled(t *testing.T) {
	dir := packages(t)
	address := model(t, dir, "/")
	for _, c := range clis() {
		t.Run(c.name, func(t *testing.T) {
			home, cwd := t.TempDir(), t.TempDir()
			first := c.startIn(t, dir, address, home, task.Order{Prompt: hostilePrompt, Cwd: cwd}).result()
			if first.Status != task.Succeeded || first.Session == "" {
				t.Fatalf("the first task: %+v", first)
			}

			session := first.Session
			if c.name == "gemini" {
				// It overwrites a session that is taken up in the minute in which it began.
				session = ""
			}
			r := c.startIn(t, dir, address, home, task.Order{Prompt: "cubby-slow", Cwd: cwd, Session: session})
			r.until("a word of the agent", func(rec task.Record) bool {
				return rec.Type == task.DeltaType && strings.Contains(string(rec.Data), "one")
			})
			r.reply(task.Reply{Cancel: true})
			result := r.result()
			if result.Status != task.Cancelled || result.FailureReason != task.ReasonCancelled || session != "" && result.Session != session {
				t.Errorf("the task that was cancelled: %+v", result)
			}
			r.gone()
			if session == "" {
				return
			}

			r = c.startIn(t, dir, address, home, task.Order{Prompt: hostilePrompt, Cwd: cwd, Session: first.Session})
			if last := r.result(); last.Status != task.Succeeded || last.Session != first.Session || last.FinalMessage != "I have read it." {
				t.Errorf("the last task: %+v", last)
			}
			for _, m := range of[task.Message](r, task.MessageType) {
				if m.Text != "I have read it." && !strings.HasPrefix(m.Text, "Warning: Model metadata") {
					t.Errorf("the last task says: %q", m.Text)
				}
			}
		})
	}
}

// With the policy to ask, each agent asks, and does what is allowed.
func TestAgentsAsk(t *testing.T) {
	dir := packages(t)
	for _, c := range clis() {
		t.Run(c.name, func(t *testing.T) {
			cwd := filepath.Join(t.TempDir(), "project")
			r := c.start(t, dir, model(t, dir, cwd), task.Order{Prompt: "Please do the cubby-work with leave.", Cwd: cwd, Permissions: task.Ask})
			asked := 0
			for {
				rec := r.until("a question or the end", func(rec task.Record) bool {
					return rec.Type == task.PermissionType || rec.Type == task.StatusType && strings.Contains(string(rec.Data), string(task.PhaseBuild))
				})
				if rec.Type != task.PermissionType {
					break
				}
				var p task.Permission
				if err := json.Unmarshal(rec.Data, &p); err != nil {
					t.Fatal(err)
				}
				if p.Status != "pending" {
					continue
				}
				asked++
				at := slices.IndexFunc(p.Options, func(o task.Option) bool { return o.Kind == "allow_once" })
				if at < 0 || p.Tool.Name == "" || p.Tool.Path == "" {
					t.Errorf("question: %+v", p)
				}
				r.reply(task.Reply{Permission: &task.Answer{ID: p.ID, Option: p.Options[max(0, at)].ID}})
			}
			result := r.result()
			if want := []string{"hello.txt", "made.txt"}; result.Status != task.Succeeded || !slices.Equal(result.FilesChanged, want) {
				t.Errorf("result: %+v", result)
			}
			if asked == 0 {
				t.Error("the agent asked nothing")
			}
			t.Logf("%d questions", asked)
		})
	}
}
