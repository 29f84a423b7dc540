//go:build root

package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/test/harness"
)

// coder is a sandbox with OpenCode, and in it a server that answers as models do:
// nothing of it needs a network.
type coder struct {
	t   *testing.T
	h   realHost
	url string // of the daemon
	id  string
}

// key is the one of a provider that there is not.
const key = "sk-of-nobody-0123456789"

// aTask is a task as the API tells it.
type aTask struct {
	ID, Status    string
	EventsURL     string   `json:"events_url"`
	FailureReason string   `json:"failure_reason"`
	ErrorMessage  string   `json:"error_message"`
	FilesChanged  []string `json:"files_changed"`
	FinalMessage  string   `json:"agent_message_final"`
	Preview       string   `json:"preview_status_after"`
	Checkpoint    string   `json:"checkpoint_id"`
	Tokens        struct{ Total int64 }
}

// anEvent is one event of a task's stream.
type anEvent struct{ id, name, data string }

// newCoder makes a sandbox with OpenCode, which installs packages of its own while it
// works, as it finds them: here it finds none.
func newCoder(t *testing.T, h realHost, url, isolation, packages string) *coder {
	t.Helper()
	c := &coder{t: t, h: h, url: url, id: "coder-" + isolation}
	succeed(t, "POST", url+"/v1/sandboxes", fmt.Sprintf(
		`{"id":%q,"isolation":%q,"ports":[3000],"visibility":"public","network":{"deny":["registry.npmjs.org"]},"limits":{"memory_bytes":3221225472,"cpus":2,"disk_bytes":4294967296}}`, c.id, isolation), nil)
	c.furnish(packages, "")
	c.sh("mkdir app; echo old > app/old.txt")
	// A session shell leaves what is root's in the home.
	succeed(t, "POST", url+"/v1/sandboxes/"+c.id+"/exec", `{"cmd":"true","session":"main"}`, nil)
	return c
}

// furnish gives the sandbox OpenCode, and a server that answers as models do: those
// of testdata unless others are given.
func (c *coder) furnish(packages, models string) {
	t := c.t
	t.Helper()
	f, err := os.Open(packages)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := clientOf(c.url).Files(c.id).Extract(t.Context(), "/home/sandbox/agent", f); err != nil {
		t.Fatal(err)
	}
	if models == "" {
		text, err := os.ReadFile("testdata/apps/opencode/models.json")
		if err != nil {
			t.Fatal(err)
		}
		models = string(text)
	}
	succeed(t, "PUT", c.url+"/v1/sandboxes/"+c.id+"/files?path=/home/sandbox/models.json", models, nil)
	c.sh(`mkdir -p ~/.local/bin; ln -s ~/agent/node_modules/opencode-linux-*/bin/opencode ~/.local/bin/opencode
node ~/agent/node_modules/@copilotkit/aimock/dist/cli.js -p 4010 -f ~/models.json > ~/models.log 2>&1 &
until curl -sf localhost:4010/health > /dev/null; do sleep 0.1; done`)
}

// sh runs a line of shell and returns what it printed.
func (c *coder) sh(line string) string {
	c.t.Helper()
	var e struct {
		Stdout, Stderr string
		ExitCode       *int `json:"exit_code"`
	}
	text, err := json.Marshal(map[string]any{"cmd": line, "wait_seconds": 250})
	if err != nil {
		c.t.Fatal(err)
	}
	succeed(c.t, "POST", c.url+"/v1/sandboxes/"+c.id+"/exec", string(text), &e)
	if e.ExitCode == nil || *e.ExitCode != 0 {
		c.t.Fatalf("%s: %+v", line, e)
	}
	return e.Stdout
}

// ask begins a task.
func (c *coder) ask(prompt string) aTask {
	c.t.Helper()
	text, err := json.Marshal(map[string]any{
		"prompt": prompt, "model": "openai/of-nobody", "cwd": "app",
		"env": map[string]string{"OPENAI_BASE_URL": "http://127.0.0.1:4010/v1", "OPENAI_API_KEY": key},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return c.start(string(text))
}

// start begins a task as its body says.
func (c *coder) start(body string) (task aTask) {
	c.t.Helper()
	succeed(c.t, "POST", c.url+"/v1/sandboxes/"+c.id+"/tasks", body, &task)
	if task.Status != "running" || task.EventsURL != "/v1/sandboxes/"+c.id+"/tasks/"+task.ID+"/events" {
		c.t.Errorf("begun: %+v", task)
	}
	return task
}

// end waits for the end of a task.
func (c *coder) end(task aTask) (ended aTask) {
	c.t.Helper()
	succeed(c.t, "GET", c.url+"/v1/sandboxes/"+c.id+"/tasks/"+task.ID+"?wait_seconds=300", "", &ended)
	return ended
}

// follow reads the events of a task to their end, or until enough says so.
func (c *coder) follow(task aTask, header string, enough func([]anEvent) bool) (events []anEvent) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.url+task.EventsURL, http.NoBody)
	if err != nil {
		c.t.Fatal(err)
	}
	if header != "" {
		req.Header.Set("Last-Event-ID", header)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 4<<20)
	var e anEvent
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			e.data = value
		case "":
			if e.name != "ping" {
				events = append(events, e)
			}
			e = anEvent{}
			if enough(events) {
				return events
			}
		}
	}
	return events
}

// checkIDs: the events count from 0 without a gap and end with done.
func (c *coder) checkIDs(events []anEvent) {
	c.t.Helper()
	for i, e := range events {
		if e.id != fmt.Sprint(i) || (e.name == "done") != (i == len(events)-1) {
			c.t.Fatalf("event %d is %+v", i, e)
		}
	}
}

func toTheEnd([]anEvent) bool { return false }

func namesOf(events []anEvent) string {
	var names []string
	for _, e := range events {
		if len(names) == 0 || names[len(names)-1] != e.name {
			names = append(names, e.name)
		}
	}
	return strings.Join(names, " ")
}

// TestOpenCode has a real OpenCode do tasks, in the long tests in both isolations.
func TestOpenCode(t *testing.T) {
	t.Parallel()
	packages := appPackages(t, "opencode")
	for _, isolation := range withAgents {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			h := newReal(t, harness.Options{})
			url, err := h.start(nil)
			if err != nil {
				t.Fatal(err)
			}
			c := newCoder(t, h, url, isolation, packages)
			c.writesRunsAndServes()
			c.isCancelled()
			c.survivesTwoDaemons()
		})
	}
}

// A task writes a file, runs a command and serves what it wrote; afterwards its
// changes are told, the server still runs, and all of it can be taken back.
func (c *coder) writesRunsAndServes() {
	t := c.t
	task := c.ask("make a page, please; $(touch /tmp/hacked) `id` \"quotes\" 'single' \\ | & ; < > * ? ~ ! # ä€😀")
	events := c.follow(task, "", toTheEnd)
	c.checkIDs(events)
	if got, want := namesOf(events), "status delta message tool delta message usage diff status done"; got != want {
		t.Errorf("events %s, want %s", got, want)
	}
	done := c.end(task)
	if done.Status != "succeeded" || fmt.Sprint(done.FilesChanged) != "[index.html old.txt]" || done.FinalMessage != "The page is at port 3000." ||
		done.Preview != "ready" || done.Checkpoint == "" || done.Tokens.Total == 0 {
		t.Errorf("the task ended so: %+v", done)
	}
	everything := fmt.Sprint(events)
	if strings.Contains(everything, key) || !strings.Contains(everything, "key=[OPENAI_API_KEY]") {
		t.Errorf("the key is not kept out of %s", everything)
	}
	if got := c.sh("ls /tmp/hacked 2>&1 || true"); !strings.Contains(got, "No such file") {
		t.Errorf("the prompt was run by a shell: %s", got)
	}
	var port struct{ URL string }
	succeed(t, "GET", c.url+"/v1/sandboxes/"+c.id+"/ports/3000", "", &port)
	if page := c.visit(port.URL); !strings.Contains(page, "Hello from an agent") {
		t.Errorf("the preview shows %s", page)
	}
	// Resumed: from the next one on.
	if rest := c.follow(task, events[len(events)-3].id, toTheEnd); len(rest) != 2 || rest[1].name != "done" || rest[0] != events[len(events)-2] {
		t.Errorf("resumed: %+v", rest)
	}
	var restored struct{ Files []string }
	succeed(t, "POST", c.url+"/v1/sandboxes/"+c.id+"/tasks/"+task.ID+"/restore", "", &restored)
	if got := c.sh("cat app/*"); got != "old\n" || fmt.Sprint(restored.Files) != "[index.html old.txt]" {
		t.Errorf("restored %v: %s", restored.Files, got)
	}
}

// visit asks a preview for its page. Names below localhost are for browsers.
func (c *coder) visit(address string) string {
	c.t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		c.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, "http://127.0.0.1:"+u.Port()+"/", http.NoBody)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Host = u.Host
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	page, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		c.t.Fatalf("%s: %s %s, %v", address, res.Status, page, err)
	}
	return string(page)
}

// A task that is cancelled leaves nothing that it started.
func (c *coder) isCancelled() {
	t := c.t
	task := c.ask("wait for me")
	c.sh("until [ -s app/begun ]; do sleep 0.1; done")
	if status, text := call(t, "POST", c.url+"/v1/sandboxes/"+c.id+"/tasks", `{"prompt":"again","cwd":"app"}`); status != http.StatusConflict || !strings.Contains(text, "task_in_progress") {
		t.Errorf("a second task: %d %s", status, text)
	}
	succeed(t, "POST", c.url+"/v1/sandboxes/"+c.id+"/tasks/"+task.ID+"/cancel", "", nil)
	done := c.end(task)
	if done.Status != "cancelled" || done.FailureReason != "cancelled" || fmt.Sprint(done.FilesChanged) != "[begun]" {
		t.Errorf("the task ended so: %+v", done)
	}
	if left := c.sh(`for p in /proc/[0-9]*/cmdline; do tr '\0' ' ' < $p 2> /dev/null | grep -E 'openc[o]de|sleep 424[2]' || true; done`); left != "" {
		t.Errorf("left: %s", left)
	}
}

// A task goes on while the daemon is killed twice; its events have no gap.
func (c *coder) survivesTwoDaemons() {
	t := c.t
	task := c.ask("take your time")
	for _, file := range []string{"go1", "go2"} {
		waiting := "until [ -e " + file
		c.follow(task, "", func(events []anEvent) bool {
			return strings.Contains(events[len(events)-1].data, waiting) && strings.Contains(events[len(events)-1].data, "running")
		})
		if err := c.h.kill(); err != nil {
			t.Fatal(err)
		}
		url, err := c.h.start(nil)
		if err != nil {
			t.Fatal(err)
		}
		c.url = url
		c.sh("touch app/" + file)
	}
	events := c.follow(task, "", toTheEnd)
	c.checkIDs(events)
	var texts []string
	for _, e := range events {
		var m struct{ Text string }
		if e.name == "message" && json.Unmarshal([]byte(e.data), &m) == nil {
			texts = append(texts, m.Text)
		}
	}
	if got := strings.Join(texts, " "); got != "One. Two. Three." {
		t.Errorf("messages %s", got)
	}
	if done := c.end(task); done.Status != "succeeded" || fmt.Sprint(done.FilesChanged) != "[go1 go2]" {
		t.Errorf("the task ended so: %+v", done)
	}
}
