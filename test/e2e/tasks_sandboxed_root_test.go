//go:build root

package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/test/harness"
)

// TestSandboxedTasks runs what sandboxed documents about tasks: a sandbox of its
// create, a task without a model or a directory, its events, a second task, a
// stopped sandbox, and what is known when it is gone.
func TestSandboxedTasks(t *testing.T) {
	t.Parallel()
	packages := appPackages(t, "opencode")
	h := newReal(t, harness.Options{})
	url, err := h.start(nil)
	if err != nil {
		t.Fatal(err)
	}
	var made struct{ ID string }
	succeed(t, "POST", url+"/sandbox", fmt.Sprintf(`{"ports":[3000],"isolation":"container","git_remote_url":"https://example.com/app.git",
		"env":{"ANTHROPIC_API_KEY":%q,"ANTHROPIC_BASE_URL":"http://127.0.0.1:4010"}}`, key), &made)
	c := &coder{t: t, h: h, url: url, id: made.ID}
	// OpenCode installs packages of its own while it works, as it finds them.
	succeed(t, "PATCH", url+"/v1/sandboxes/"+c.id, `{"network":{"deny":["registry.npmjs.org"]}}`, nil)
	c.furnish(packages, "")
	tasks := url + "/v1/sandboxes/" + c.id + "/tasks"

	for body, want := range map[string]int{`{`: 400, `{}`: 400, `{"prompt":""}`: 400, `{"prompt":"x","agent":"nobody"}`: 400} {
		if status, text := call(t, "POST", tasks, body); status != want {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	if status, text := call(t, "POST", url+"/v1/sandboxes/nosuch/tasks", `{"prompt":"x"}`); status != http.StatusNotFound {
		t.Errorf("an unknown sandbox: %d %s", status, text)
	}

	// As curl -d sends it, with a form's content type.
	status, text := sent(t, "POST", tasks, "Content-Type", "application/x-www-form-urlencoded", `{"prompt":"say hello","agent":"opencode"}`)
	if status != http.StatusAccepted {
		t.Fatalf("start = %d %s", status, text)
	}
	var task aTask
	decode(t, text, &task)
	events := c.follow(task, "", toTheEnd)
	c.checkIDs(events)
	if got := namesOf(events); !strings.HasPrefix(got, "status ") || !strings.Contains(got, "message") || !strings.HasSuffix(got, "done") {
		t.Errorf("events %s", got)
	}
	if got := c.end(task); got.Status != "succeeded" || got.FinalMessage != "Hello." || got.FilesChanged == nil {
		t.Errorf("the task ended so: %+v", got)
	}
	if rest := c.follow(task, events[len(events)-2].id, toTheEnd); len(rest) != 1 || rest[0].name != "done" {
		t.Errorf("resumed: %+v", rest)
	}
	var list struct {
		Events []struct {
			ID   int
			Type string
		}
		Next int
	}
	if status, text = sent(t, "GET", url+task.EventsURL+"?since=1", "Accept", "application/json", ""); status != http.StatusOK {
		t.Fatalf("the events as JSON: %d %s", status, text)
	}
	decode(t, text, &list)
	if len(list.Events) != len(events)-1 || list.Events[0].ID != 1 || list.Next != len(events) || list.Events[len(list.Events)-1].Type != "done" {
		t.Errorf("as JSON: %+v", list)
	}

	// One task at a time; while it runs the sandbox is not stopped.
	waiting := c.start(`{"prompt":"wait for me"}`)
	c.sh("until [ -s ~/workspace/app/begun ]; do sleep 0.1; done")
	if status, text := call(t, "POST", tasks, `{"prompt":"say hello"}`); status != http.StatusConflict || !strings.Contains(text, `"code":"task_in_progress"`) {
		t.Errorf("a second task: %d %s", status, text)
	}
	if status, text := call(t, "POST", url+"/v1/sandboxes/"+c.id+"/stop", ""); status != http.StatusConflict || !strings.Contains(text, `"code":"task_in_progress"`) {
		t.Errorf("stop: %d %s", status, text)
	}
	var row struct {
		Runtime struct {
			ActiveTask *struct{ ID, Status, Phase string } `json:"active_task"`
		}
	}
	succeed(t, "GET", url+"/sandbox/"+c.id, "", &row)
	if a := row.Runtime.ActiveTask; a == nil || a.ID != waiting.ID || a.Status != "running" || a.Phase != "agent_running" {
		t.Errorf("the active task is %+v", a)
	}
	for range 2 {
		if status, text := call(t, "POST", tasks+"/"+waiting.ID+"/cancel", ""); status != http.StatusOK || !strings.Contains(text, `"status":"cancelling"`) {
			t.Errorf("cancel: %d %s", status, text)
		}
	}
	if got := c.end(waiting); got.Status != "cancelled" {
		t.Errorf("the task ended so: %+v", got)
	}

	// A stopped one is started for a task, whoever stopped it.
	succeed(t, "POST", url+"/v1/sandboxes/"+c.id+"/stop", "", nil)
	late := c.start(`{"prompt":"say hello","timeout_seconds":5}`)
	var now struct {
		Status     string
		ActiveTask string `json:"active_task_id"`
	}
	succeed(t, "GET", url+"/v1/sandboxes/"+c.id, "", &now)
	if now.Status != "running" || now.ActiveTask != late.ID {
		t.Errorf("the sandbox is %+v, its task %s", now, late.ID)
	}
	// Nobody answers as a model does any more, and the agent asks until its time is over.
	if got := c.end(late); got.Status != "failed" || got.FailureReason != "agent_timeout" || got.ErrorMessage == "" {
		t.Errorf("the task ended so: %+v", got)
	}

	// What is known outlives the sandbox.
	succeed(t, "POST", url+"/sandbox/"+c.id+"/purge", "", nil)
	if got := c.end(task); got.Status != "succeeded" {
		t.Errorf("after the purge: %+v", got)
	}
	if again := c.follow(task, "", toTheEnd); len(again) != len(events) {
		t.Errorf("%d events after the purge, %d before", len(again), len(events))
	}
}

// sent asks with a header that call does not set, and returns the answer.
func sent(t *testing.T, method, address, header, value, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(header, value)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}
