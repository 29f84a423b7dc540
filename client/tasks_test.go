package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/client/task"
)

const (
	taskJSON = `{"id":"t1","sandbox_id":"a","status":"running","agent":"claude","prompt":"p","cwd":"/workspace","permissions":"ask",
"seq":3,"events_url":"/v1/sandboxes/a/tasks/t1/events","created_at":"2026-01-02T03:04:05Z"}`
	taskEnded = `{"id":"t1","sandbox_id":"a","status":"failed","agent":"claude","prompt":"p","cwd":"/workspace","permissions":"allow","seq":3,
"events_url":"x","created_at":"2026-01-02T03:04:05Z","failure_reason":"agent_error","error_message":"no key\n","files_changed":["a.txt"],
"build_ok":true,"checkpoint_id":"c0ffee","push":{"ok":false,"message":"refused"},"duration_ms":1500,
"tokens":{"input":1,"output":2,"reasoning":0,"cache_read":0,"cache_write":0,"total":3,"cost":0.5},"finished_at":"2026-01-02T03:04:07Z"}`
)

func TestTaskRequests(t *testing.T) {
	type m = map[string]any
	start := func(o task.Options) func(context.Context, *client.Client) error {
		return func(ctx context.Context, c *client.Client) error {
			got, err := c.Tasks("a").Start(ctx, o)
			if err == nil && (got.ID != "t1" || got.Seq != 3 || got.Finished()) {
				t.Errorf("got %+v", got)
			}
			return err
		}
	}
	const tasks = "/v1/sandboxes/a/tasks"
	testRequests(t, []requestTest{
		{"start", start(task.Options{Prompt: "p"}), 202, taskJSON, request{"POST", tasks, "", m{"prompt": "p"}}},
		{"start all", start(task.Options{
			Prompt: "p", Agent: "claude", Model: "m", Cwd: "app", Env: map[string]string{"K": "v"}, Secrets: []string{"S"}, Resume: "t0",
			Ask: true, Timeout: 90 * time.Second,
		}), 202, taskJSON, request{"POST", tasks, "", m{
			"prompt": "p", "agent": "claude", "model": "m", "cwd": "app", "env": m{"K": "v"}, "secrets": []any{"S"}, "resume": "t0",
			"permissions": "ask", "timeout_seconds": 90.0,
		}}},
		{"start a command", start(task.Options{
			Prompt: "p", Command: []string{"sh", "-c", "true"}, Protocol: task.JSONLines, Timeout: -1,
		}), 202, taskJSON, request{"POST", tasks, "", m{
			"prompt": "p", "command": []any{"sh", "-c", "true"}, "protocol": "json-lines", "timeout_seconds": 0.0,
		}}},
		{"get", func(ctx context.Context, c *client.Client) error {
			_, err := c.Tasks("a").Get(ctx, "../x")
			return err
		}, 200, taskJSON, request{"GET", tasks + "/..%2Fx", "", nil}},
		{"wait", func(ctx context.Context, c *client.Client) error {
			got, err := c.Tasks("a").Wait(ctx, "t1")
			var failed *task.Error
			if !errors.As(got.Err(), &failed) || failed.Error() != "task t1: failed (agent_error): no key" {
				t.Errorf("Err = %v", got.Err())
			}
			if got.Checkpoint != "c0ffee" || got.Push.OK || got.Tokens.Cost != 0.5 || len(got.FilesChanged) != 1 {
				t.Errorf("got %+v", got)
			}
			return err
		}, 200, taskEnded, request{"GET", tasks + "/t1", "wait_seconds=50", nil}},
		{"cancel", func(ctx context.Context, c *client.Client) error {
			status, err := c.Tasks("a").Cancel(ctx, "t1")
			if status != task.Running {
				t.Errorf("status %q", status)
			}
			return err
		}, 200, `{"id":"t1","status":"cancelling","task_status":"running"}`, request{"POST", tasks + "/t1/cancel", "", nil}},
		{"answer", func(ctx context.Context, c *client.Client) error {
			return c.Tasks("a").Answer(ctx, "t1", "q/1", "yes")
		}, 204, "", request{"POST", tasks + "/t1/permissions/q%2F1", "", m{"option": "yes"}}},
		{"restore", func(ctx context.Context, c *client.Client) error {
			files, err := c.Tasks("a").Restore(ctx, "t1")
			if len(files) != 1 {
				t.Errorf("files %q", files)
			}
			return err
		}, 200, `{"restored":true,"files":["a.txt"]}`, request{"POST", tasks + "/t1/restore", "", nil}},
		{"events so far", func(ctx context.Context, c *client.Client) error {
			events, next, err := c.Tasks("a").EventsSoFar(ctx, "t1", 4)
			if next != 5 || len(events) != 1 || events[0].Time.IsZero() {
				t.Errorf("got %+v, %d", events, next)
			}
			return err
		}, 200, `{"events":[{"id":4,"type":"status","time":"2026-01-02T03:04:05Z","data":{"phase":"starting"}}],"next":5}`,
			request{"GET", tasks + "/t1/events", "since=4", nil}},
	})
}

func TestTaskListPages(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("before") == "" {
			answer(w, 200, `{"tasks":[{"id":"c"},{"id":"b"}],"next_before":7}`)
			return
		}
		answer(w, 200, `{"tasks":[{"id":"a"}]}`)
	})
	ids := ""
	for one, err := range c.Tasks("a").List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		ids += one.ID
	}
	if ids != "cba" {
		t.Errorf("tasks %q", ids)
	}
}

func taskEvent(id int, kind, data string) string {
	return fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", id, kind, data)
}

// TestTaskEventsOverBrokenConnections: no event is missing or comes twice, and what
// the sandbox calls like a word of the stream is an event like others.
func TestTaskEventsOverBrokenConnections(t *testing.T) {
	var asked []string
	pieces := []string{
		taskEvent(2, "status", `{"phase":"starting"}`) + "event: ping\ndata: {}\n\n" + taskEvent(3, "note", `{"x":1}`) + "id: 4\nevent: mess",
		taskEvent(3, "note", `{"x":1}`) + taskEvent(4, "message", `{"role":"agent","text":"hi","message_id":"m"}`),
		taskEvent(5, "done", `{"id":"t1","status":"succeeded","files_changed":[],"duration_ms":1}`) + taskEvent(6, "message", `{}`),
	}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("since"))
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, pieces[len(asked)-1])
	})
	var got []string
	for e, err := range c.Tasks("a").Events(t.Context(), "t1", 2) {
		if err != nil {
			t.Fatal(err)
		}
		v, err := e.Value()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%d %s %T", e.ID, e.Type, v))
	}
	want := []string{"2 status task.Phase", "3 note <nil>", "4 message task.Message", "5 done task.Task"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"2", "4", "5"}, asked); diff != "" {
		t.Errorf("since (-want +got):\n%s", diff)
	}
}

func TestTaskEventsThatCannotBeRead(t *testing.T) {
	for name, text := range map[string]string{
		"not JSON": taskEvent(0, "status", "{"),
		"no id":    "id: x\nevent: status\ndata: {}\n\n",
		"pruned":   "event: error\ndata: {\"error\":{\"code\":\"not_found\",\"message\":\"the events were removed\"}}\n\n",
	} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, text)
		})
		for e, err := range c.Tasks("a").Events(t.Context(), "t1", 0) {
			if err == nil {
				t.Errorf("%s: event %+v", name, e)
			}
		}
	}
	if v, err := (task.Event{Type: "plan", Data: []byte(`{"entries":7}`)}).Value(); err == nil {
		t.Errorf("a plan that is none is %+v", v)
	}
}

// TestRunTaskHearsEvents, and cancels the task when the caller leaves.
func TestRunTaskHearsEvents(t *testing.T) {
	canceled := make(chan string, 1)
	ctx, leave := context.WithCancel(t.Context())
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/events"):
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, taskEvent(0, "status", `{"phase":"starting"}`))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case strings.HasSuffix(r.URL.Path, "/cancel"):
			canceled <- r.URL.Path
			answer(w, 200, `{"id":"t1","status":"cancelling","task_status":"running"}`)
		default:
			answer(w, 202, taskJSON)
		}
	})
	_, err := c.Tasks("a").Run(ctx, task.Options{Prompt: "p", KillOnCancel: true, OnEvent: func(task.Event) { leave() }})
	if !errors.Is(err, client.Canceled) {
		t.Errorf("Run = %v", err)
	}
	if got := <-canceled; got != "/v1/sandboxes/a/tasks/t1/cancel" {
		t.Errorf("canceled %s", got)
	}
}
