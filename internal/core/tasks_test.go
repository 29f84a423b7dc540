package core_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/tasks"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/storetest"
	"github.com/cubbyhq/cubby/internal/task"
)

// supervisedBy makes a shell script the supervisor of tasks. It has say, which prints
// a record.
func supervisedBy(script string) func(*core.Config) {
	const say = `say() { printf '{"type":"%s","at":"2026-01-02T03:04:05Z","data":%s}\n' "$1" "$2"; }
`
	return func(c *core.Config) { c.Sandboxes.TaskProgram = []string{"bash", "-c", say + script, "supervisor"} }
}

// startTask asks a custom agent for something.
func (w *world) startTask(id string, edit ...func(*tasks.Request)) tasks.Task {
	w.t.Helper()
	req := tasks.Request{Prompt: "make it so", Command: []string{"agent"}}
	for _, e := range edit {
		e(&req)
	}
	started, err := w.Tasks().Start(w.ctx, id, req)
	if err != nil {
		w.t.Fatalf("start a task in %s: %v", id, err)
	}
	return started
}

// endTask waits for the end of a task.
func (w *world) endTask(id string, taskID sandbox.UID) task.Result {
	w.t.Helper()
	done, err := w.Tasks().Wait(w.ctx, id, string(taskID), time.Minute)
	if err != nil || done.Result == nil {
		w.t.Fatalf("wait for a task of %s: %+v, %v", id, done, err)
	}
	return *done.Result
}

// taskEvents reads the events of a task from an id on.
func (w *world) taskEvents(id string, taskID sandbox.UID, from int64, follow bool) []tasks.Event {
	w.t.Helper()
	var all []tasks.Event
	for e, err := range w.Tasks().Events(w.ctx, id, string(taskID), from, follow) {
		if err != nil {
			w.t.Fatalf("events of a task of %s: %v", id, err)
		}
		all = append(all, e)
	}
	return all
}

func typesOf(events []tasks.Event) string {
	var all []string
	for _, e := range events {
		all = append(all, fmt.Sprintf("%d:%s", e.ID, e.Type))
	}
	return strings.Join(all, " ")
}

func TestTaskEventsCountFromZeroAndEndWithDone(t *testing.T) {
	w := newWorld(t, supervisedBy(`
say status '{"phase":"starting"}'
say status '{"phase":"agent_running","checkpoint_id":"c0ffee"}'
say message '{"role":"agent","text":"hello"}'
echo 'this is no record'
echo '{"type":"","data":{}}'
head -c 3000000 /dev/zero | tr '\0' x; echo
printf '{"type":"tool","at":"2026-01-02T03:04:05Z",'; sleep 0.05; echo '"data":{"name":"write","status":"completed","path":"a"}}'
say done '{"id":"forged","status":"succeeded","files_changed":["a"],"checkpoint_id":"c0ffee","session_id":"s1","tokens":{"input":3},"created_at":"1999-01-01T00:00:00Z","duration_ms":99999999}'
`))
	w.limits.PerExec = 16 << 20
	w.restart()
	w.create("a")
	started := w.startTask("a")
	if started.State != task.Running || started.Agent != "custom" || started.Cwd != "/workspace" {
		t.Errorf("started %+v", started)
	}
	events := w.taskEvents("a", started.ID, 0, true)
	if got, want := typesOf(events), "0:status 1:status 2:message 3:tool 4:done"; got != want {
		t.Fatalf("events %s, want %s", got, want)
	}
	r := w.endTask("a", started.ID)
	if r.ID != string(started.ID) || r.Status != task.Succeeded || r.CreatedAt.Year() < 2020 || r.DurationMS > time.Minute.Milliseconds() ||
		r.Session != "s1" || r.Tokens.Input != 3 || strings.Join(r.FilesChanged, " ") != "a" {
		t.Errorf("result %+v", r)
	}
	var last task.Result
	if err := json.Unmarshal(events[4].Data, &last); err != nil || last.ID != r.ID || last.Status != r.Status {
		t.Errorf("done has %s: %v", events[4].Data, err)
	}
	if got := typesOf(w.taskEvents("a", started.ID, 3, false)); got != "3:tool 4:done" {
		t.Errorf("from the third: %s", got)
	}
	if got := typesOf(w.taskEvents("a", started.ID, 5, true)); got != "" {
		t.Errorf("after the last: %s", got)
	}
	page, err := w.Tasks().List(w.ctx, "a", 0, 0)
	if err != nil || len(page.Tasks) != 1 || page.Tasks[0].State != task.Succeeded || page.Before != 0 {
		t.Errorf("List = %+v, %v", page, err)
	}

	// What is known outlives the sandbox.
	if err := w.Sandboxes().Destroy(w.ctx, "a", false); err != nil {
		t.Fatal(err)
	}
	if r := w.endTask("a", started.ID); r.Status != task.Succeeded {
		t.Errorf("after the sandbox: %+v", r)
	}
	if got := typesOf(w.taskEvents("a", started.ID, 2, true)); got != "2:message 3:tool 4:done" {
		t.Errorf("events after the sandbox: %s", got)
	}
}

// A supervisor that does not come to say how it ended leaves a result that is true.
func TestTaskWithoutAResult(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		status task.State
		reason string
		says   string
	}{
		"it exits":      {`echo 'no such agent' >&2; exit 3`, task.Failed, task.ReasonInternal, "exit code 3: no such agent"},
		"it says less":  {`say done '{"status":"running"}'`, task.Failed, task.ReasonInternal, "without a result"},
		"it says junk":  {`say done '"succeeded"'`, task.Failed, task.ReasonInternal, "exit code 0"},
		"it is killed":  {`say status '{"phase":"agent_running","checkpoint_id":"abc"}'; say diff '{"path":"made"}'; kill -9 $$`, task.Failed, task.ReasonInternal, "exit code 137"},
		"no such thing": {``, task.Failed, task.ReasonInternal, "exit code 0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, supervisedBy(c.script))
			w.create("a")
			started := w.startTask("a")
			r := w.endTask("a", started.ID)
			if r.Status != c.status || r.FailureReason != c.reason || !strings.Contains(r.ErrorMessage, c.says) && name != "it says less" {
				t.Errorf("result %+v", r)
			}
			if name == "it is killed" && (r.Checkpoint != "abc" || strings.Join(r.FilesChanged, " ") != "made") {
				t.Errorf("what it said before is lost: %+v", r)
			}
			if events := w.taskEvents("a", started.ID, 0, true); len(events) == 0 || events[len(events)-1].Type != task.DoneType {
				t.Errorf("events %s", typesOf(events))
			}
		})
	}
}

// waitsForLines prints each line that it reads, and ends with the one that cancels.
const waitsForLines = `
say status '{"phase":"agent_running"}'
while IFS= read -r line; do
  say message "{\"role\":\"agent\",\"text\":\"read\"}"
  case $line in
  *cancel*) say done '{"status":"cancelled","failure_reason":"cancelled"}'; exit 0 ;;
  *option*) say permission '{"id":"q1","status":"resolved","options":[],"outcome":"yes"}' ;;
  esac
done
`

func TestOneTaskForEachDirectory(t *testing.T) {
	w := newWorld(t, supervisedBy(waitsForLines))
	b := w.create("a")
	first := w.startTask("a")
	for _, cwd := range []string{"", "/workspace", "/workspace/", "/workspace/x/..", "."} {
		_, err := w.Tasks().Start(w.ctx, "a", tasks.Request{Prompt: "again", Command: []string{"agent"}, Cwd: cwd})
		if !errors.Is(err, errs.TaskInProgress) || !strings.Contains(err.Error(), string(first.ID)) {
			t.Errorf("a second one in %q: %v", cwd, err)
		}
	}
	other := w.startTask("a", func(r *tasks.Request) { r.Cwd = "other" })
	if other.Cwd != "/workspace/other" {
		t.Errorf("the directory is %s", other.Cwd)
	}
	if _, err := w.Sandboxes().Stop(w.ctx, "a", -1); !errors.Is(err, errs.TaskInProgress) {
		t.Errorf("Stop = %v", err)
	}
	w.until("the first one is told of", func() bool {
		id, phase, err := w.Tasks().Active(w.ctx, b)
		return err == nil && id == first.ID && phase == task.PhaseAgent
	})
	for _, x := range []tasks.Task{first, other} {
		if _, err := w.Tasks().Cancel(w.ctx, "a", string(x.ID)); err != nil {
			t.Fatal(err)
		}
		if r := w.endTask("a", x.ID); r.Status != task.Cancelled {
			t.Errorf("result %+v", r)
		}
		// Cancelling twice changes nothing.
		if again, err := w.Tasks().Cancel(w.ctx, "a", string(x.ID)); err != nil || again.State != task.Cancelled {
			t.Errorf("Cancel of one that has ended = %+v, %v", again, err)
		}
	}
	if id, _, err := w.Tasks().Active(w.ctx, b); err != nil || id != "" {
		t.Errorf("Active = %s, %v", id, err)
	}
	if _, err := w.Sandboxes().Stop(w.ctx, "a", -1); err != nil {
		t.Errorf("Stop = %v", err)
	}
}

// A task goes on without the daemon, and nothing of its events is lost or there twice.
func TestTaskOverTwoDaemons(t *testing.T) {
	go1, go2 := filepath.Join(t.TempDir(), "1"), filepath.Join(t.TempDir(), "2")
	w := newWorld(t, supervisedBy(`
for n in 1 2 3; do say message "{\"role\":\"agent\",\"text\":\"$n\"}"; done
until [ -e `+go1+` ]; do sleep 0.01; done
for n in 4 5 6; do say message "{\"role\":\"agent\",\"text\":\"$n\"}"; done
until [ -e `+go2+` ]; do sleep 0.01; done
say request '{"id":1,"act":"push"}'
IFS= read -r line
case $line in *'"id":1'*'no git_remote_url'*) say push '{"ok":false}' ;; *) say push "$line" ;; esac
say done '{"status":"succeeded"}'
`))
	w.create("a")
	started := w.startTask("a")
	release := func(file string) {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.until("it has begun", func() bool { return len(w.taskEvents("a", started.ID, 0, false)) == 3 })
	w.restart()
	release(go1)
	w.until("it has gone on", func() bool { return len(w.taskEvents("a", started.ID, 0, false)) == 6 })
	w.restart()
	release(go2)
	if r := w.endTask("a", started.ID); r.Status != task.Succeeded {
		t.Errorf("result %+v", r)
	}
	var texts []string
	for _, e := range w.taskEvents("a", started.ID, 0, true) {
		var m task.Message
		if e.Type == task.MessageType && json.Unmarshal(e.Data, &m) == nil {
			texts = append(texts, m.Text)
		}
		if e.Type == task.PushType && string(e.Data) != `{"ok":false}` {
			t.Errorf("the supervisor was told %s", e.Data)
		}
	}
	if got := strings.Join(texts, " "); got != "1 2 3 4 5 6" {
		t.Errorf("messages %s", got)
	}
}

func TestAnswersOfTasks(t *testing.T) {
	w := newWorld(t, supervisedBy(`say permission '{"id":"q1","status":"pending","options":[{"id":"yes","name":"Yes","kind":"allow_once"}]}'`+"\n"+waitsForLines))
	w.create("a")
	started := w.startTask("a", func(r *tasks.Request) { r.Permissions = task.Ask })
	w.until("it has asked", func() bool { return len(w.taskEvents("a", started.ID, 0, false)) >= 1 })
	answer := func(question, option string) error {
		return w.Tasks().Answer(w.ctx, "a", string(started.ID), question, option)
	}
	if err := answer("q2", "yes"); !errors.Is(err, errs.NotFound) {
		t.Errorf("a question that nobody asked: %v", err)
	}
	if err := answer("q1", "no"); !errors.Is(err, errs.Invalid) {
		t.Errorf("an option that there is not: %v", err)
	}
	if err := answer("q1", "yes"); err != nil {
		t.Fatal(err)
	}
	if err := answer("q1", "yes"); err != nil {
		t.Errorf("the same answer again: %v", err)
	}
	if err := answer("q1", "no"); !errors.Is(err, errs.WrongState) {
		t.Errorf("another one: %v", err)
	}
	if _, err := w.Tasks().Cancel(w.ctx, "a", string(started.ID)); err != nil {
		t.Fatal(err)
	}
	w.endTask("a", started.ID)
}

// Of two answers the agent takes the first. Who gives the other one hears that.
func TestAnswerThatIsNotTaken(t *testing.T) {
	for resolved, want := range map[string]error{
		`say permission '{"id":"q1","status":"resolved","outcome":"yes"}'; cat`:       errs.WrongState,
		`say permission '{"id":"q1","status":"resolved","outcome":"cancelled"}'; cat`: errs.WrongState,
		`say permission '{"id":"q2","status":"resolved","outcome":"no"}'`:             errs.WrongState, // it ends
		`sleep 0.1; say permission '{"id":"q1","status":"resolved","outcome":"no"}'`:  nil,
	} {
		const question = `say permission '{"id":"q1","status":"pending","options":[{"id":"yes"},{"id":"no"}]}'; IFS= read -r line; `
		w := newWorld(t, supervisedBy(question+resolved))
		w.create("a")
		started := w.startTask("a", func(r *tasks.Request) { r.Permissions = task.Ask })
		w.until("it has asked", func() bool { return len(w.taskEvents("a", started.ID, 0, false)) >= 1 })
		if err := w.Tasks().Answer(w.ctx, "a", string(started.ID), "q1", "no"); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%s: %v, want %v", resolved, err, want)
		}
		if _, err := w.Execs().Cancel(w.ctx, "a", started.Seq); err != nil && !errors.Is(err, errs.WrongState) {
			t.Error(err)
		}
	}
}

// Values of variables are in no history, no event and no file of the daemon.
func TestTaskEnvironmentIsKeptNowhere(t *testing.T) {
	const fromCaller, fromOperator = "value-of-the-caller", "value-of-the-operator"
	w := newWorld(t, supervisedBy(`
say message "{\"role\":\"agent\",\"text\":\"${#MY_KEY} ${#OPERATORS} ${#CUBBY_TASK_0}\"}"
say done '{"status":"succeeded"}'`))
	w.create("a")
	if _, err := w.Secrets().Set(w.ctx, "", "OPERATORS", fromOperator); err != nil {
		t.Fatal(err)
	}
	started := w.startTask("a", func(r *tasks.Request) {
		r.Env = map[string]string{"MY_KEY": fromCaller}
		r.Secrets = []string{"OPERATORS"}
	})
	w.endTask("a", started.ID)
	var m task.Message
	if events := w.taskEvents("a", started.ID, 0, true); json.Unmarshal(events[0].Data, &m) != nil ||
		!strings.HasPrefix(m.Text, fmt.Sprintf("%d %d ", len(fromCaller), len(fromOperator))) || strings.HasSuffix(m.Text, " 0") {
		t.Errorf("the agent has %q", m.Text)
	}
	x, err := w.Execs().Get(w.ctx, "a", started.Seq)
	if err != nil {
		t.Fatal(err)
	}
	history, _, err := w.Events().List(w.ctx, "a", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal([]any{x, history})
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{fromCaller, fromOperator} {
		if strings.Contains(string(text), value) {
			t.Errorf("%s is in %s", value, text)
		}
	}
	if _, err := w.Tasks().Start(w.ctx, "a", tasks.Request{Prompt: "x", Command: []string{"agent"}, Secrets: []string{"NOT_SET"}}); !errors.Is(err, errs.Invalid) {
		t.Errorf("a secret that is not set: %v", err)
	}
}

func TestTaskRequestsAreChecked(t *testing.T) {
	w := newWorld(t, supervisedBy(``))
	w.create("a")
	minute, negative := time.Minute, -time.Second
	for name, req := range map[string]tasks.Request{
		"no prompt":              {Command: []string{"agent"}},
		"a blank prompt":         {Prompt: " \n", Command: []string{"agent"}},
		"a prompt with NUL":      {Prompt: "a\x00b", Command: []string{"agent"}},
		"an unknown agent":       {Prompt: "x", Agent: "nobody"},
		"custom without":         {Prompt: "x", Agent: "custom"},
		"agent and command":      {Prompt: "x", Agent: "opencode", Command: []string{"agent"}},
		"protocol alone":         {Prompt: "x", Protocol: task.ACP},
		"an unknown protocol":    {Prompt: "x", Command: []string{"agent"}, Protocol: "morse"},
		"unknown permissions":    {Prompt: "x", Command: []string{"agent"}, Permissions: "sometimes"},
		"a negative limit":       {Prompt: "x", Command: []string{"agent"}, Timeout: &negative},
		"a session of nothing":   {Prompt: "x", Command: []string{"agent"}, Resume: "nosuch", Timeout: &minute},
		"an env that is none":    {Prompt: "x", Command: []string{"agent"}, Env: map[string]string{"A=B": "c"}},
		"a model with a line":    {Prompt: "x", Command: []string{"agent"}, Model: "a\nb"},
		"an argument with NUL":   {Prompt: "x", Command: []string{"agent", "\x00"}},
		"a directory with NUL":   {Prompt: "x", Command: []string{"agent"}, Cwd: "a\x00"},
		"a limit that is a year": {Prompt: "x", Command: []string{"agent"}, Timeout: func() *time.Duration { d := 366 * 24 * time.Hour; return &d }()},
	} {
		if _, err := w.Tasks().Start(w.ctx, "a", req); !errors.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.Tasks().Start(w.ctx, "a", tasks.Request{Prompt: strings.Repeat("x", task.MaxPrompt+1), Command: []string{"agent"}}); !errors.Is(err, errs.TooLarge) {
		t.Errorf("a prompt that is too long: %v", err)
	}
	if _, err := w.Tasks().Start(w.ctx, "nosuch", tasks.Request{Prompt: "x"}); !errors.Is(err, errs.NotFound) {
		t.Errorf("no such sandbox: %v", err)
	}
	if _, err := w.Tasks().Get(w.ctx, "a", "nosuch"); !errors.Is(err, errs.NotFound) {
		t.Errorf("no such task: %v", err)
	}
	// A command of the sandbox is not a task.
	x := w.launch("a", "echo ready; sleep 1000")
	if _, err := w.Tasks().Get(w.ctx, "a", string(x.UID)); !errors.Is(err, errs.NotFound) {
		t.Errorf("a command: %v", err)
	}
	if _, err := w.Execs().Cancel(w.ctx, "a", x.Seq); err != nil {
		t.Fatal(err)
	}
}

// The agent of a sandbox that began before there were tasks waits for ever in the
// place of a supervisor.
func TestTaskWhoseSupervisorDoesNotBegin(t *testing.T) {
	w := newWorld(t, supervisedBy(`cat > /dev/null`))
	w.create("a")
	started := w.startTask("a")
	if _, err := w.Execs().Cancel(w.ctx, "a", started.Seq); err != nil {
		t.Fatal(err)
	}
	if r := w.endTask("a", started.ID); r.Status != task.Failed || r.FailureReason != task.ReasonInternal || !strings.Contains(r.ErrorMessage, "stopped and started") {
		t.Errorf("result %+v", r)
	}
}

// Who knows that a task has ended may begin the next one and stop the sandbox, although
// the store cannot be written.
func TestNextTaskDoesNotWaitForTheStore(t *testing.T) {
	w := newWorld(t, supervisedBy(`read line; say done '{"status":"succeeded"}'`))
	b := w.create("a")
	started := w.startTask("a")
	w.until("its start is written", func() bool {
		x, err := w.store.Exec(w.ctx, b.UID, started.Seq)
		return err == nil && x.Status == sandbox.ExecRunning
	})
	mend := storetest.Break(t, filepath.Join(w.dir, "cubby.db"), "UPDATE OF status ON execs", "")
	if _, err := w.Execs().WriteStdin(w.ctx, "a", started.Seq, -1, []byte("\n"), false); err != nil {
		t.Fatal(err)
	}
	w.endTask("a", started.ID)
	if id, _, err := w.Tasks().Active(w.ctx, b); err != nil || id != "" {
		t.Errorf("Active = %s, %v", id, err)
	}
	mend()
	next := w.startTask("a")
	if _, err := w.Tasks().Cancel(w.ctx, "a", string(next.ID)); err != nil {
		t.Fatal(err)
	}
	w.endTask("a", next.ID)
	if _, err := w.Sandboxes().Stop(w.ctx, "a", -1); err != nil {
		t.Errorf("Stop = %v", err)
	}
}

// The next daemon does what nobody answered, and not again what somebody did.
func TestNextDaemonAnswersWhatWaits(t *testing.T) {
	dir := t.TempDir()
	w := newWorld(t, supervisedBy(`
say request '{"id":1,"act":"restart_dev"}'
IFS= read -r line; say message "{\"role\":\"agent\",\"text\":\"1\"}"
until [ -e `+dir+`/go ]; do sleep 0.01; done
say request '{"id":2,"act":"restart_dev"}'
IFS= read -r line; case $line in *'"id":2'*) say done '{"status":"succeeded"}' ;; *) say done "{\"status\":\"failed\",\"error_message\":\"read again\"}" ;; esac
`))
	w.create("a")
	started := w.startTask("a")
	w.until("the first is answered", func() bool { return len(w.taskEvents("a", started.ID, 0, false)) == 1 })
	w.restart()
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := w.endTask("a", started.ID); r.Status != task.Succeeded {
		t.Errorf("result %+v", r)
	}
}
