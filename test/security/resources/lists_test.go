package resources_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/seal"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/task"
)

// listed is what the lists of the test are of.
type listed struct{ box, threadID, runID, assistantID, checkpointID, taskID string }

const (
	largeRows = 40
	largeRow  = 512 << 10
	longNames = 1000 // rows that have nothing but names
)

// fill gives a stopped daemon's tenant rows of every kind that lists are made of, as
// large as clients can make them.
func fill(t *testing.T, dir, box string) (l listed) {
	t.Helper()
	key, err := seal.OpenKey(filepath.Join(dir, "seal.key"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), store.Config{Path: filepath.Join(dir, "cubby.db"), Seal: key})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx := t.Context()
	b, err := s.Sandbox(ctx, sandbox.ID(box))
	if err != nil {
		t.Fatal(err)
	}
	l.box = box
	text := strings.Repeat("x", largeRow)
	raw := json.RawMessage(`"` + text + `"`)
	large := map[string]json.RawMessage{"large": raw}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	thread := conversation.Thread{UID: sandbox.NewUID(), ID: "many", Tenant: "acme", Owner: "web"}
	must(s.CreateConversation(ctx, thread))
	l.threadID = thread.ID
	now := time.Now()
	for i := range largeRows {
		id := fmt.Sprintf("00000000-0000-0000-0000-%012d", i)
		must(s.CreateConversation(ctx, conversation.Thread{UID: sandbox.NewUID(), ID: id, Tenant: "acme", Owner: "web", Metadata: large}))
		must(s.CreateAssistant(ctx, conversation.Assistant{ID: id, Tenant: "acme", GraphID: "agent", Name: id, Version: 1, Config: json.RawMessage(`{}`), Metadata: large}))
		_, err := s.CreateRun(ctx, store.NewRun{Run: conversation.Run{ID: id, Thread: thread.UID, AssistantID: id, Status: conversation.RunSuccess, Metadata: large}})
		must(err)
		checkpoint := conversation.Checkpoint{ID: conversation.NewID(), Source: conversation.SourceUpdate, Metadata: large}
		_, _, err = s.Commit(ctx, store.CommitRequest{Thread: thread.UID, Checkpoint: checkpoint, Head: true, State: []conversation.Entry{
			{Message: conversation.Message{Type: conversation.Human, ID: id, Content: raw}},
		}})
		must(err)
		l.runID, l.assistantID, l.checkpointID = id, id, checkpoint.ID
		command := sandbox.ExecSpec{Argv: []string{"true", text}}
		result, err := json.Marshal(map[string]string{"summary": text})
		must(err)
		for _, kind := range []string{"", task.Kind} {
			x := sandbox.Exec{UID: sandbox.NewUID(), Box: b.UID, Spec: command, CreatedAt: now}
			x.Spec.Kind = kind
			x.Seq, err = s.CreateExec(ctx, x)
			must(err)
			x.Status, x.Exit, x.FinishedAt, x.Result = sandbox.ExecDone, &sandbox.Exit{Code: new(int)}, now, result
			_, err = s.FinishStartedExec(ctx, x)
			must(err)
			if kind != "" {
				l.taskID = string(x.UID)
			}
		}
		_, err = s.AppendEvent(ctx, sandbox.Event{Box: b.UID, Kind: "git.commit", Time: now, Payload: result})
		must(err)
		other := sandbox.Sandbox{UID: sandbox.NewUID(), ID: sandbox.ID(fmt.Sprintf("large-%d", i)), Tenant: b.Tenant, Driver: b.Driver, Spec: b.Spec}
		other.Spec.Env = map[string]string{"LARGE": text[:largeRow/4]}
		must(s.CreateSandbox(ctx, other))
		_, err = s.Move(ctx, other.UID, sandbox.Failed, store.Change{})
		must(err)
		n := sandbox.Snapshot{UID: sandbox.NewUID(), Name: fmt.Sprintf("large-%d", i), Tenant: "acme", Source: b.ID, SourceUID: b.UID, State: sandbox.SnapshotCreating, Spec: other.Spec, CreatedAt: now}
		must(s.CreateSnapshot(ctx, n))
		must(s.ReadySnapshot(ctx, n.UID, 1, 0))
	}
	for range 15 { // an assistant keeps 8 MiB of versions
		_, err := s.ChangeAssistant(ctx, "acme", l.assistantID, func(*conversation.Assistant) error { return nil })
		must(err)
	}
	quarter := json.RawMessage(`"` + text[:largeRow/4] + `"`)
	for i := range largeRows {
		must(s.CreateCron(ctx, conversation.Cron{
			ID: fmt.Sprintf("00000000-0000-0000-0000-%012d", i), Tenant: "acme", AssistantID: l.assistantID, Schedule: "0 0 1 1 *",
			Run: conversation.CronRun{Metadata: map[string]json.RawMessage{"large": quarter}}, Metadata: map[string]json.RawMessage{"large": quarter},
		}, 0))
		item := conversation.Item{Namespace: []string{"large"}, Key: strconv.Itoa(i), Value: json.RawMessage(`{"large":` + string(raw) + `}`)}
		must(s.SetItem(ctx, "acme", item, store.ItemBounds{}))
	}
	name := strings.Repeat("n", 1000)
	for i := range longNames {
		item := conversation.Item{Namespace: []string{"long", fmt.Sprintf("%d-%s", i, name)}, Key: name, Value: json.RawMessage(`{}`)}
		must(s.SetItem(ctx, "acme", item, store.ItemBounds{}))
		must(s.AddWebhookMessage(ctx, store.WebhookMessage{ID: strconv.Itoa(i), Tenant: "acme", Subject: "/threads/" + name, URL: "http://127.0.0.1:1/" + name + name}))
	}
	exports := make([]store.Export, 5000)
	for i := range exports {
		exports[i] = store.Export{Path: fmt.Sprintf("/workspace/%s/%d", strings.Repeat("d/", 1000), i), Kind: sandbox.RegularFile, At: now}
	}
	must(s.AddExports(ctx, b.UID, exports))
	return l
}

// operation is what api/openapi.json says of a route, as far as lists matter.
type operation struct {
	method, path, query string
	body                string
}

// listRoutes are the routes of the API's description whose answer is a list, or has one
// in it.
func listRoutes(t *testing.T) (list []operation) {
	t.Helper()
	text, err := os.ReadFile("../../../api/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	type schema struct {
		Ref        string             `json:"$ref"`
		Type       any                `json:"type"`
		Properties map[string]*schema `json:"properties"`
	}
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name   string
				Schema struct{ Maximum float64 }
			}
			Responses map[string]struct {
				Content map[string]struct{ Schema schema }
			}
		}
		Components struct{ Schemas map[string]schema }
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	isList := func(s schema) bool { return strings.Contains(fmt.Sprint(s.Type), "array") }
	for path, methods := range doc.Paths {
		for method, op := range methods {
			s := op.Responses["200"].Content["application/json"].Schema
			if s.Ref != "" {
				s = doc.Components.Schemas[s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]]
			}
			some := isList(s)
			for _, p := range s.Properties {
				some = some || isList(*p)
			}
			if !some {
				continue
			}
			o := operation{method: strings.ToUpper(method), path: path}
			for _, p := range op.Parameters {
				if p.Name == "limit" {
					o.query = fmt.Sprintf("?limit=%d", cmp.Or(int(p.Schema.Maximum), 1000))
				}
			}
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b operation) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	return list
}

// searches are the lists that are asked for with a POST. Others that are POSTs, or
// change something in another way, act: what they answer with was just made.
var searches = []string{
	"/agent/assistants/search", "/agent/assistants/{assistant_id}/versions", "/agent/threads/search", "/agent/threads/{thread_id}/history",
	"/agent/threads/{thread_id}/state/checkpoint", "/agent/runs/crons/search", "/agent/store/items/search", "/agent/store/namespaces",
}

// light are the lists whose elements are small, so that it takes many clients to show what
// each of them holds.
var light = []string{
	"/agent/assistants/{assistant_id}/versions", "/agent/runs/crons/search", "/agent/store/items/search", "/agent/store/namespaces", "/v1/webhooks/messages",
}

var acts = []string{
	"/agent/runs/batch", "/agent/threads/{thread_id}/files/upload", "/threads/{thread_id}/files/upload", "/v1/sandboxes/{id}/code",
	"/v1/sandboxes/{id}/exports", "/v1/sandboxes/{id}/imports", "/v1/sandboxes/{id}/keepalive", "/v1/sandboxes/{id}/kernels/{kernel}/complete",
	"/v1/sandboxes/{id}/rollback", "/v1/sandboxes/{id}/sleep", "/v1/sandboxes/{id}/start", "/v1/sandboxes/{id}/stop",
	"/v1/sandboxes/{id}/tasks/{task}/restore", "/v1/sandboxes/{id}/wake",
}

// elsewhere are the lists that are not of the store: what a sandbox that runs says, the
// journal of a cell, files of the host.
var elsewhere = []string{"/v1/sandboxes/{id}/kernels", "/v1/sandboxes/{id}/code/{seq}", "/v1/tenants/{tenant}/uploads"}

// TestListsThatNobodyReads asks for every list that the API's description has, many
// times at once, over rows as large as clients can make them, and reads none of it.
func TestListsThatNobodyReads(t *testing.T) {
	dir, err := os.MkdirTemp("", "lists")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := startIn(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := d.client(acme).Create(ctx, client.CreateOptions{ID: "box"}); err != nil {
		t.Fatal(err)
	}
	d.stop()
	of := fill(t, dir, "box")
	d = startIn(t, dir)
	values := map[string]string{
		"id": of.box, "thread_id": of.threadID, "run_id": of.runID, "assistant_id": of.assistantID, "checkpoint_id": of.checkpointID, "task": of.taskID,
		"tenant": "acme", "seq": "1",
	}
	for _, op := range listRoutes(t) {
		clients := 24
		if slices.Contains(light, op.path) {
			clients = 150
		}
		switch {
		case slices.Contains(elsewhere, op.path):
			continue
		case op.method == "GET":
			if strings.HasPrefix(op.path, "/sandbox/") {
				op.query = strings.ReplaceAll(op.query, "1000", "200") // the most of that dialect
			}
			if op.path == "/agent/store/items" {
				op.query = "?namespace=large&key=0"
			}
			op.path += op.query
		case op.method == "POST" && slices.Contains(searches, op.path):
			op.body = `{"limit":1000,"checkpoint":{"checkpoint_id":"` + of.checkpointID + `"}}`
			if strings.HasSuffix(op.path, "/history") {
				op.body = `{"limit":1000}`
			}
		case op.method == "POST" && slices.Contains(acts, op.path), op.method == "PATCH", op.method == "DELETE":
			continue
		default:
			t.Errorf("%s %s: is it a search, or does it act?", op.method, op.path)
			continue
		}
		for name, value := range values {
			op.path = strings.ReplaceAll(op.path, "{"+name+"}", value)
		}
		if strings.Contains(op.path, "{") {
			t.Errorf("%s: the test has no value for its path", op.path)
			continue
		}
		token := acme
		if strings.HasPrefix(op.path, "/v1/tenants") || op.path == "/v1/secrets" {
			token = operator
		}
		var mu sync.Mutex
		statuses := map[string]int{}
		crowd(clients, func() {
			status := d.get(token, fmt.Sprintf("%s %s HTTP/1.1\r\nContent-Length: %d", op.method, op.path, len(op.body)), op.body)
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
		})
		if statuses["200"]+statuses["503"] == 0 {
			t.Errorf("%s %s: answers %v, want 200 or 503", op.method, op.path, statuses)
		}
		d.bounded(fmt.Sprintf("%s %s (%v)", op.method, op.path, statuses))
		d.hangUp()
	}
	// A page that ends early because it is large says where the next one begins.
	seen, before := 0, int64(0)
	for pages := 0; pages == 0 || before > 0; pages++ {
		var page struct {
			Tasks []json.RawMessage `json:"tasks"`
			Next  int64             `json:"next_before"`
		}
		d.read(acme, fmt.Sprintf("/v1/sandboxes/%s/tasks?limit=100&before=%d", of.box, before), &page)
		seen, before = seen+len(page.Tasks), page.Next
	}
	if seen != largeRows {
		t.Errorf("the pages of tasks have %d, want %d", seen, largeRows)
	}
}

// read decodes the answer of a GET.
func (d *daemon) read(token, path string, v any) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, "http://"+d.address+path, http.NoBody)
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(v); err != nil || res.StatusCode != http.StatusOK {
		d.t.Fatalf("%s: %s, %v", path, res.Status, err)
	}
}
