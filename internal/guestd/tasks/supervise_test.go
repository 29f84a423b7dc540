package tasks

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cubbyhq/cubby/internal/task"
)

// start starts a task with an agent of the tests.
func start(t *testing.T, agent string, order task.Order, env map[string]string) *running {
	t.Helper()
	order.Agent = fakeAgent(t, agent)
	return begin(t, order, env)
}

func TestTaskIsTold(t *testing.T) {
	t.Parallel()
	r := start(t, "work", task.Order{ID: "t-9", Prompt: "write"}, nil)
	result := r.result()
	want := task.Result{ID: "t-9", Status: task.Succeeded, FilesChanged: []string{"hello.txt"}, FinalMessage: "Done.", BuildOK: true,
		Session: fakeSession, StopReason: "end_turn", Tokens: task.Tokens{Input: 10, Output: 2, Total: 12}}
	if got := result; got.Checkpoint == "" || got.StartedAt.IsZero() || got.FinishedAt.Before(got.StartedAt) {
		t.Errorf("result: %+v", got)
	}
	want.Checkpoint, want.CreatedAt, want.StartedAt, want.FinishedAt, want.DurationMS = result.Checkpoint, result.CreatedAt, result.StartedAt, result.FinishedAt, result.DurationMS
	if got, want := fmt.Sprintf("%+v", result), fmt.Sprintf("%+v", want); got != want {
		t.Errorf("result:\n%s\nwant\n%s", got, want)
	}

	var kinds []string
	for _, rec := range r.all {
		if rec.Type == task.DeltaType {
			continue // how many there are, is a question of time
		}
		kinds = append(kinds, rec.Type)
	}
	if got, want := strings.Join(kinds, " "), "status status status thought message tool tool tool plan message usage diff status status done"; got != want {
		t.Errorf("records: %s\nwant %s", got, want)
	}
	var phases []task.Phase
	for _, s := range of[task.Status](r, task.StatusType) {
		phases = append(phases, s.Phase)
	}
	if want := []task.Phase{task.PhaseStarting, task.PhaseCheck, task.PhaseAgent, task.PhaseBuild, task.PhaseHealth}; !slices.Equal(phases, want) {
		t.Errorf("phases: %v", phases)
	}
	var tools []string
	for _, call := range of[task.Tool](r, task.ToolType) {
		tools = append(tools, fmt.Sprintf("%s %s %s %q", call.Name, call.Status, filepath.Base(call.Path), call.Output))
	}
	if want := []string{`Write a file pending hello.txt ""`, `Write a file running hello.txt ""`, `Write a file completed hello.txt "it is written"`}; !slices.Equal(tools, want) {
		t.Errorf("tools: %q", tools)
	}
	said := make(map[string]string)
	for _, d := range of[task.Delta](r, task.DeltaType) {
		said[d.ID] += d.Of + ":" + d.Text + ";"
	}
	for _, m := range of[task.Message](r, task.MessageType) {
		if got := strings.ReplaceAll(strings.ReplaceAll(said[m.ID], ";message:", ""), ";", ""); got != "message:"+m.Text {
			t.Errorf("the pieces of %+v are %q", m, said[m.ID])
		}
	}
	diff := of[task.Diff](r, task.DiffType)[0]
	if diff.Path != "hello.txt" || diff.Status != "added" || !strings.Contains(diff.Patch, "+hello\n") {
		t.Errorf("diff: %+v", diff)
	}
	r.gone()
}

// A secret is in nothing that is printed: not in pieces of messages, not escaped,
// not in names of files, diffs and standard error.
func TestSecretsAreKept(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"tok-0123456789abc", `quo"te\back/slash`, "sk-sk-sk-sk-sk-"} {
		r := start(t, "secret", task.Order{Prompt: "tell"}, map[string]string{"MY_TOKEN": secret})
		result := r.result()
		all := r.printed()
		for _, form := range []string{secret, escaped(secret), escaped(escaped(secret))} {
			if strings.Contains(all, form) {
				t.Errorf("%q is in the output:\n%s", form, all)
			}
		}
		if want := "It is [MY_TOKEN]! And " + secret[:5] + "."; result.FinalMessage != want {
			t.Errorf("final message: %q, want %q", result.FinalMessage, want)
		}
		if !strings.Contains(r.stderr.String(), "[MY_TOKEN]") {
			t.Errorf("stderr: %q", r.stderr.String())
		}
		deltas := ""
		for _, d := range of[task.Delta](r, task.DeltaType) {
			deltas += d.Text
		}
		if deltas != result.FinalMessage {
			t.Errorf("pieces: %q", deltas)
		}
	}
}

func TestPermissionIsAsked(t *testing.T) {
	t.Parallel()
	r := start(t, "ask", task.Order{Prompt: "x", Permissions: task.Ask}, nil)
	var p task.Permission
	rec := r.until("the question", func(rec task.Record) bool { return rec.Type == task.PermissionType })
	if err := json.Unmarshal(rec.Data, &p); err != nil {
		t.Fatal(err)
	}
	if p.Status != "pending" || p.Tool.Name != "Remove all" || p.Tool.Path != "rm -rf ." || len(p.Options) != 3 {
		t.Errorf("permission: %+v", p)
	}
	r.reply("this is no JSON")
	r.reply(strings.Repeat("x", 2*maxReply))
	r.reply(task.Reply{Permission: &task.Answer{ID: p.ID, Option: "what is not offered"}})
	r.reply(task.Reply{Permission: &task.Answer{ID: "nobody", Option: "no"}})
	for range 2 {
		r.reply(task.Reply{Permission: &task.Answer{ID: p.ID, Option: "no"}})
	}
	if result := r.result(); result.FinalMessage != "chosen: no" {
		t.Errorf("result: %+v", result)
	}
	all := of[task.Permission](r, task.PermissionType)
	if len(all) != 2 || all[1].Status != "resolved" || all[1].Outcome != "no" || all[1].ID != p.ID {
		t.Errorf("permissions: %+v", all)
	}
}

// The host compares the outcome with the option that it answered.
func TestOutcomeThatLooksLikeASecret(t *testing.T) {
	t.Parallel()
	r := start(t, "ask", task.Order{Prompt: "x", Permissions: task.Ask}, map[string]string{"MY_TOKEN": "always"})
	r.until("the question", func(rec task.Record) bool { return rec.Type == task.PermissionType })
	r.reply(task.Reply{Permission: &task.Answer{ID: "permission-1", Option: "always"}})
	r.result()
	if all := of[task.Permission](r, task.PermissionType); len(all) != 2 || all[1].Outcome != "always" {
		t.Errorf("permissions: %+v", all)
	}
}

// Some agents answer before they have sent their last words.
func TestAgentSpeaksAfterItsAnswer(t *testing.T) {
	t.Parallel()
	if result := start(t, "late", task.Order{Prompt: "x"}, nil).result(); result.Status != task.Succeeded || result.FinalMessage != "It is done." {
		t.Errorf("result: %+v", result)
	}
}

func TestPermissionIsGiven(t *testing.T) {
	t.Parallel()
	r := start(t, "ask", task.Order{Prompt: "x"}, nil)
	if result := r.result(); result.FinalMessage != "chosen: once" {
		t.Errorf("result: %+v", result)
	}
	if all := of[task.Permission](r, task.PermissionType); len(all) > 0 {
		t.Errorf("permissions: %+v", all)
	}
}

func TestPermissionOfACancelledTask(t *testing.T) {
	t.Parallel()
	r := start(t, "ask", task.Order{Prompt: "x", Permissions: task.Ask}, nil)
	r.until("the question", func(rec task.Record) bool { return rec.Type == task.PermissionType })
	r.reply(task.Reply{Cancel: true})
	if result := r.result(); result.Status != task.Cancelled || result.FinalMessage != "nothing was chosen" {
		t.Errorf("result: %+v", result)
	}
	if all := of[task.Permission](r, task.PermissionType); len(all) != 2 || all[1].Outcome != outcomeCancelled {
		t.Errorf("permissions: %+v", all)
	}
}

func awaitWork(r *running) {
	r.t.Helper()
	r.until("the agent's first word", func(rec task.Record) bool { return rec.Type == task.DeltaType })
}

// An agent that heeds the cancel ends by itself, and what it left running goes on.
func TestCancelIsHeeded(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"reply", "signal"} {
		r := start(t, "wait", task.Order{Prompt: "x"}, nil)
		awaitWork(r)
		if how == "reply" {
			r.reply(task.Reply{Cancel: true})
			r.reply(task.Reply{Cancel: true})
		} else if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		result := r.result()
		if result.Status != task.Cancelled || result.FailureReason != task.ReasonCancelled || result.StopReason != "cancelled" || result.ErrorMessage != "" {
			t.Errorf("%s: %+v", how, result)
		}
		r.survivor()
	}
}

// An agent that does not is killed, with all that descends from it.
func TestCancelIsIgnored(t *testing.T) {
	t.Parallel()
	r := start(t, "stubborn", task.Order{Prompt: "x"}, nil)
	awaitWork(r)
	r.reply(task.Reply{Cancel: true})
	if result := r.result(); result.Status != task.Cancelled || result.Session != fakeSession {
		t.Errorf("result: %+v", result)
	}
	r.gone()
}

func TestTimeLimit(t *testing.T) {
	t.Parallel()
	r := start(t, "stubborn", task.Order{Prompt: "x", Seconds: 0.5}, nil)
	result := r.result()
	if result.Status != task.Failed || result.FailureReason != task.ReasonTimeout || result.ErrorMessage == "" {
		t.Errorf("result: %+v", result)
	}
	r.gone()
}

// What an agent started in the background lives on, also when the agent has to be
// killed after its work.
func TestServersLiveOn(t *testing.T) {
	t.Parallel()
	for _, agent := range []string{"leave", "deaf"} {
		r := start(t, agent, task.Order{Prompt: "x"}, nil)
		if result := r.result(); result.Status != task.Succeeded {
			t.Errorf("%s: %+v", agent, result)
		}
		r.survivor()
	}
}

// An agent behind a program that only starts it ends with it.
func TestWrappedAgentEnds(t *testing.T) {
	t.Parallel()
	agent := fakeAgent(t, "deaf")
	agent.Command = []string{"/bin/sh", "-c", `"$0"; true`, agent.Command[0]}
	r := begin(t, task.Order{Prompt: "x", Agent: agent}, nil)
	if result := r.result(); result.Status != task.Succeeded {
		t.Errorf("result: %+v", result)
	}
	r.survivor()
}

// survivor checks that the sleeping program of leave is all that runs, and ends
// it.
func (r *running) survivor() {
	r.t.Helper()
	left := r.left()
	if len(left) != 1 {
		r.t.Errorf("%d processes are left, want the one that the agent left", len(left))
	}
	for _, pid := range left {
		if text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); string(text) != "sleep\x001000\x00" {
			r.t.Errorf("what is left is %q", text)
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

func TestAgentsThatFail(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ agent, says string }{
		{"exit", "boom: out of luck"},
		{"garbage", "does not speak its protocol"},
		{"silent", "said nothing"},
		{"error", "the model is ill"},
		{"stop-max_tokens", "limit of tokens"},
		{"stop-max_turn_requests", "limit of requests"},
		{"stop-refusal", "refused"},
		{"stop-weariness", "unknown reason"},
		{"stop-cancelled", "was not"},
	} {
		t.Run(tt.agent, func(t *testing.T) {
			t.Parallel()
			r := start(t, tt.agent, task.Order{Prompt: "x"}, nil)
			result := r.result()
			if result.Status != task.Failed || result.FailureReason != task.ReasonAgent || !strings.Contains(result.ErrorMessage, tt.says) {
				t.Errorf("result: %+v, want %q", result, tt.says)
			}
			messages := of[task.Message](r, task.MessageType)
			if len(messages) == 0 || messages[len(messages)-1].Role != task.RoleError {
				t.Errorf("messages: %+v", messages)
			}
			r.gone()
		})
	}
}

func TestAgentThatCannotStart(t *testing.T) {
	t.Parallel()
	for _, command := range [][]string{{"no-such-agent"}, {"/etc/passwd"}, {}} {
		r := begin(t, task.Order{Prompt: "x", Agent: task.Agent{Name: "x", Protocol: task.ACP, Command: command}}, nil)
		if result := r.result(); result.Status != task.Failed || result.ErrorMessage == "" {
			t.Errorf("%q: %+v", command, result)
		}
	}
}

// An agent that says much, and faster than it is read, loses no message, and no
// record is too long.
func TestFlood(t *testing.T) {
	t.Parallel()
	r := start(t, "flood", task.Order{Prompt: "x"}, nil)
	if result := r.result(); result.Status != task.Succeeded {
		t.Errorf("result: %+v", result)
	}
	if got := len(of[task.Message](r, task.MessageType)); got != 3001 {
		t.Errorf("%d messages", got)
	}
	if got := len(of[task.Tool](r, task.ToolType)); got != 3000 {
		t.Errorf("%d calls of tools", got)
	}
	for _, d := range of[task.Delta](r, task.DeltaType) {
		if len(d.Text) > maxDelta {
			t.Errorf("a piece of %d bytes", len(d.Text))
		}
	}
}

func TestSessions(t *testing.T) {
	t.Parallel()
	r := start(t, "load", task.Order{Prompt: "go on", Session: "session-3"}, nil)
	if result := r.result(); result.Status != task.Succeeded || result.Session != "session-3" || result.FinalMessage != "prompt: go on" {
		t.Errorf("result: %+v", result)
	}
	if strings.Contains(r.printed(), "an old story") {
		t.Errorf("what was said before is said again: %s", r.printed())
	}
	r = start(t, "echo", task.Order{Prompt: "go on", Session: "session-3"}, nil)
	if result := r.result(); result.Status != task.Failed || !strings.Contains(result.ErrorMessage, "cannot resume") {
		t.Errorf("result: %+v", result)
	}
}

func TestModelAndAuthentication(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		agent, model, auth string
		status             task.State
	}{
		{"echo", "good", "", task.Succeeded},
		{"echo", "bad", "", task.Failed},
		{"auth", "", "key", task.Succeeded},
		{"echo", "", "key", task.Failed},
	} {
		agent := fakeAgent(t, tt.agent)
		agent.Model, agent.Auth = tt.model, tt.auth
		r := begin(t, task.Order{Prompt: "x", Agent: agent}, nil)
		if result := r.result(); result.Status != tt.status {
			t.Errorf("%+v: %+v", tt, result)
		}
	}
}

// The end of the standard input changes nothing.
func TestInputEnds(t *testing.T) {
	t.Parallel()
	r := start(t, "work", task.Order{Prompt: "x"}, nil)
	if err := r.in.Close(); err != nil {
		t.Fatal(err)
	}
	if result := r.result(); result.Status != task.Succeeded {
		t.Errorf("result: %+v", result)
	}
}

func TestJSONLinesAgent(t *testing.T) {
	t.Parallel()
	agent := fakeAgent(t, "lines")
	agent.Protocol = task.JSONLines
	r := begin(t, task.Order{Prompt: "$(id) `id`\n\"", Agent: agent}, nil)
	result := r.result()
	var texts []string
	for _, m := range of[task.Message](r, task.MessageType) {
		texts = append(texts, m.Text)
	}
	if want := []string{"$(id) `id`\n\"", "plain text"}; result.Status != task.Succeeded || result.Session != "ses_1" || !slices.Equal(texts, want) {
		t.Errorf("messages %q of %+v", texts, result)
	}
}

func TestFilesOfTheAgent(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "mine"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	agent := fakeAgent(t, "work")
	agent.Files = []task.File{{Path: "~/mine", Content: "yours", Keep: true}, {Path: "~/.a/b", Content: "new"}}
	if result := begin(t, task.Order{Prompt: "x", Agent: agent}, map[string]string{"HOME": home}).result(); result.Status != task.Succeeded {
		t.Errorf("result: %+v", result)
	}
	for name, want := range map[string]string{"mine": "mine", ".a/b": "new"} {
		if got, err := os.ReadFile(filepath.Join(home, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	agent.Files = []task.File{{Path: "~/../escape", Content: "x"}}
	if result := begin(t, task.Order{Prompt: "x", Agent: agent}, nil).result(); result.FailureReason != task.ReasonInternal {
		t.Errorf("a file outside of the home: %+v", result)
	}
}

// The host pushes and restarts the dev server when it is asked to.
func TestHostActs(t *testing.T) {
	t.Parallel()
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer app.Close()
	order := task.Order{Prompt: "x", Push: true, DevServer: true, Port: app.Listener.Addr().(*net.TCPAddr).Port}
	agent := fakeAgent(t, "work")
	agent.Command = []string{"/bin/sh", "-c", `echo "export default {}" > vite.config.ts; exec "$0"`, agent.Command[0]}
	order.Agent = agent
	r := begin(t, order, nil)
	for {
		rec := r.until("a request or the result", func(rec task.Record) bool { return rec.Type == task.RequestType || rec.Type == task.PushType })
		if rec.Type == task.PushType {
			break
		}
		var req task.Request
		if err := json.Unmarshal(rec.Data, &req); err != nil {
			t.Fatal(err)
		}
		switch req.Act {
		case task.ActRestart:
			r.reply(task.Reply{Acted: &task.Acted{ID: req.ID, OK: true}})
		case task.ActPush:
			r.reply(task.Reply{Acted: &task.Acted{ID: 77, OK: true}})
			r.reply(task.Reply{Acted: &task.Acted{ID: req.ID, OK: true, Push: &task.Push{OK: true, Commit: "abc", Branch: "main"}}})
		}
	}
	result := r.result()
	if result.Push == nil || result.Push.Commit != "abc" || result.PreviewStatus != previewReady {
		t.Errorf("result: %+v", result)
	}
	if got := of[task.Request](r, task.RequestType); len(got) != 2 || got[0].Act != task.ActRestart || got[1].Act != task.ActPush {
		t.Errorf("requests: %+v", got)
	}
}

// A dev server that the host cannot restart is not waited for.
func TestHostCannotRestart(t *testing.T) {
	t.Parallel()
	agent := fakeAgent(t, "work")
	agent.Command = []string{"/bin/sh", "-c", `echo > tsconfig.json; exec "$0"`, agent.Command[0]}
	r := begin(t, task.Order{Prompt: "x", Agent: agent, DevServer: true, Port: 1}, nil)
	r.until("the request", func(rec task.Record) bool { return rec.Type == task.RequestType })
	r.reply(task.Reply{Acted: &task.Acted{ID: 1, Message: "there is none"}})
	if result := r.result(); result.Status != task.Succeeded || result.PreviewStatus != previewDown || result.PreviewMessage == "" {
		t.Errorf("result: %+v", result)
	}
}

// The agent starts with every signal as it is by default.
func TestAgentIgnoresNoSignals(t *testing.T) {
	t.Parallel()
	agent := task.Agent{Name: "x", Protocol: task.JSONLines, Command: []string{"grep", "-h", "^SigIgn:", "/proc/self/status"}}
	// The prompt is a file that is not there.
	r := begin(t, task.Order{Prompt: "/nowhere", Agent: agent}, nil)
	r.result()
	got := of[task.Message](r, task.MessageType)
	if len(got) == 0 {
		t.Fatal("it said nothing")
	}
	ignored, err := strconv.ParseUint(strings.TrimSpace(strings.TrimPrefix(got[0].Text, "SigIgn:")), 16, 64)
	// Signals from 32 on are the C library's own; whoever runs the test may ignore them.
	const known = 1<<31 - 1
	if err != nil || ignored&known != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}
