package agentapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

const nobody = "1f0caa98-bfa9-6bbf-bf5b-d7e4ef1b6a7c"

// TestStatuses: what clients do wrong has never a status that they try again.
func TestStatuses(t *testing.T) {
	r := newRig(t, false)
	thread := r.thread()
	for _, tt := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/info", "", 200},
		{"GET", "/ok", "", 200},
		{"POST", "/threads", "", 200},
		{"POST", "/threads", `{"metadata":null,"if_exists":null,"nobody knows":[1]}`, 200},
		{"POST", "/threads", `{`, 400},
		{"POST", "/threads", `[]`, 400},
		{"POST", "/threads", `{"thread_id":"` + thread + `"}`, 409},
		{"POST", "/threads", `{"thread_id":"` + thread + `","if_exists":"do_nothing"}`, 200},
		{"POST", "/threads", `{"thread_id":"` + strings.Repeat("x", 300) + `"}`, 400},
		{"GET", "/threads/" + thread, "", 200},
		{"GET", "/threads/" + nobody, "", 404},
		{"PATCH", "/threads/" + thread, `{"metadata":{"a":1}}`, 200},
		{"POST", "/threads/search", `{"limit":0}`, 400},
		{"POST", "/threads/search", `{"limit":1001}`, 400},
		{"POST", "/threads/search", `{"status":"nope"}`, 400},
		{"POST", "/threads/search", `{"sort_by":"nope"}`, 400},
		{"POST", "/threads/search", `{"metadata":null,"limit":null}`, 200},
		{"POST", "/threads/count", `{}`, 200},
		{"GET", "/threads/" + thread + "/state", "", 200},
		{"GET", "/threads/" + nobody + "/state", "", 404},
		{"GET", "/threads/" + thread + "/state/" + nobody, "", 404},
		{"GET", "/threads/" + thread + "/history", "", 200},
		{"GET", "/threads/" + thread + "/history?limit=x", "", 400},
		{"POST", "/threads/" + thread + "/history", `{"limit":5,"before":{"configurable":{"checkpoint_id":"` + nobody + `"}}}`, 200},
		{"POST", "/threads/" + thread + "/history", `{"checkpoint":{"checkpoint_ns":"tools:1"}}`, 200},
		{"POST", "/threads/" + thread + "/state", `{"values":{"messages":[{"type":"nope"}]}}`, 400},
		{"POST", "/threads/" + thread + "/state", `{"values":null,"as_node":"nope"}`, 400},
		{"PATCH", "/threads/" + thread + "/state", `{"metadata":{}}`, 404},
		{"POST", "/threads/" + thread + "/runs", `{"input":{}}`, 422},
		{"POST", "/threads/" + thread + "/runs", `{"assistant_id":"nope","input":{}}`, 404},
		{"POST", "/threads/" + thread + "/runs", `{"assistant_id":"agent","stream_mode":"nope"}`, 400},
		{"POST", "/threads/" + thread + "/runs", `{"assistant_id":"agent","multitask_strategy":"nope"}`, 400},
		{"POST", "/threads/" + thread + "/runs", `{"assistant_id":"agent","on_disconnect":"nope"}`, 400},
		{"POST", "/threads/" + thread + "/runs", `{"assistant_id":"agent","webhook":"x"}`, 400},
		{"POST", "/threads/" + thread + "/runs", `{"assistant_id":"agent","after_seconds":3}`, 422},
		{"POST", "/threads/" + thread + "/runs", `{"assistant_id":"agent","input":{"messages":7}}`, 400},
		{"POST", "/threads/" + nobody + "/runs", says("hi", ""), 404},
		{"GET", "/threads/" + thread + "/runs?status=nope", "", 400},
		{"GET", "/threads/" + nobody + "/runs", "", 404},
		{"GET", "/threads/" + thread + "/runs/" + nobody, "", 404},
		{"GET", "/threads/" + thread + "/runs/" + nobody + "/join", "", 404},
		{"GET", "/threads/" + thread + "/runs/" + nobody + "/stream", "", 404},
		{"DELETE", "/threads/" + thread + "/runs/" + nobody, "", 404},
		{"POST", "/threads/" + thread + "/runs/" + nobody + "/cancel", "", 404},
		{"POST", "/threads/" + thread + "/runs/" + nobody + "/cancel?action=nope", "", 400},
		{"POST", "/runs/cancel", `{}`, 422},
		{"POST", "/runs/cancel", `{"status":"all"}`, 204},
		{"POST", "/runs/batch", `[]`, 400},
		{"GET", "/assistants/agent", "", 200},
		{"GET", "/assistants/sandbox-agent", "", 200},
		{"GET", "/assistants/nope", "", 404},
		{"GET", "/assistants/agent/graph?xray=true", "", 200},
		{"GET", "/assistants/agent/schemas", "", 200},
		{"GET", "/assistants/agent/subgraphs", "", 200},
		{"GET", "/assistants/agent/subgraphs/x", "", 200},
		{"POST", "/assistants", `{"graph_id":"agent","assistant_id":"` + nobody + `","name":"mine"}`, 200},
		{"POST", "/assistants", `{"graph_id":"agent","assistant_id":"` + nobody + `"}`, 409},
		{"POST", "/assistants", `{"graph_id":"agent","assistant_id":"` + nobody + `","if_exists":"do_nothing"}`, 200},
		{"POST", "/assistants", `{}`, 422},
		{"POST", "/assistants", `{"graph_id":"nope"}`, 404},
		{"PATCH", "/assistants/" + nobody, `{"metadata":{"a":1}}`, 200},
		{"POST", "/assistants/" + nobody + "/versions", `{}`, 200},
		{"POST", "/assistants/" + nobody + "/latest", `{"version":2}`, 200},
		{"POST", "/assistants/" + nobody + "/latest", `{"version":3}`, 404},
		{"POST", "/assistants/search", `{"name":"MIN"}`, 200},
		{"POST", "/assistants/count", ``, 200},
		{"DELETE", "/assistants/" + nobody, "", 200},
		{"DELETE", "/assistants/agent", "", 409},
		{"PUT", "/store/items", `{}`, 422},
		{"POST", "/store/items/search", `{}`, 200},
		{"POST", "/runs/crons", `{}`, 422},
		{"GET", "/nope", "", 404},
		{"PUT", "/threads", "", 405},
		{"POST", "/threads/" + thread + "/copy", "", 200},
		{"POST", "/threads/prune", `{"thread_ids":["` + nobody + `"]}`, 200},
		{"DELETE", "/threads/" + thread, "", 204},
		{"DELETE", "/threads/" + thread, "", 404},
	} {
		got := r.do(tt.method, tt.path, tt.body)
		if got.status != tt.status {
			t.Errorf("%s %s %s = %d %s, want %d", tt.method, tt.path, tt.body, got.status, got.body, tt.status)
		}
		if got.status < 400 {
			continue
		}
		var e struct{ Error, Message, Detail string }
		if json.Unmarshal([]byte(got.body), &e) != nil || e.Error == "" || e.Message == "" || !strings.HasPrefix(e.Detail, e.Message) {
			t.Errorf("%s %s %s = %s, which is no error of the platform", tt.method, tt.path, tt.body, got.body)
		}
	}
}

func TestBodies(t *testing.T) {
	r := newRig(t, false)
	thread := r.thread()
	// Proxies take the type away.
	if got := r.do("POST", "/threads/search", `{"limit":1}`, "Content-Type", "text/plain"); got.status != 200 || !strings.Contains(got.body, thread) {
		t.Errorf("as text = %d %s", got.status, got.body)
	}
	image := `{"type":"image","mimeType":"image/png","data":"` + strings.Repeat("A", 256<<10) + `"}`
	if got := r.do("POST", "/threads/"+thread+"/state", `{"values":{"messages":[{"role":"user","content":[{"type":"text","text":"hi"},`+image+`]}]}}`); got.status != 200 {
		t.Errorf("with an image = %d %.200s", got.status, got.body)
	}
	// An image of 10 MB has room, and a body without end has not.
	for size, status := range map[int]int{14 << 20: 200, 21 << 20: http.StatusRequestEntityTooLarge} {
		if got := r.do("POST", "/threads/search", `{"nobody knows":"`+strings.Repeat("A", size)+`"}`); got.status != status {
			t.Errorf("%d bytes = %d %.200s", size, got.status, got.body)
		}
	}
}

func TestPages(t *testing.T) {
	r := newRig(t, false)
	for range 3 {
		r.thread()
	}
	for _, tt := range []struct{ body, total, next string }{
		{`{"limit":2}`, "3", "2"}, {`{"limit":2,"offset":2}`, "3", ""}, {`{"limit":10}`, "3", ""}, {`{"offset":9}`, "3", ""},
	} {
		got := r.do("POST", "/threads/search", tt.body)
		if total, next := got.header.Get("X-Pagination-Total"), got.header.Get("X-Pagination-Next"); total != tt.total || next != tt.next {
			t.Errorf("search %s: total %q next %q, want %q %q", tt.body, total, next, tt.total, tt.next)
		}
	}
	var some []map[string]any
	r.do("POST", "/threads/search", `{"select":["thread_id","status"],"sort_order":"asc"}`).into(t, &some)
	if len(some) != 3 || len(some[0]) != 2 {
		t.Errorf("selected = %v", some)
	}
	if got := r.do("POST", "/threads/count", `{}`); strings.TrimSpace(got.body) != "3" {
		t.Errorf("count = %s", got.body)
	}
}

// TestGraphIsNamed: a search by what the platform writes into threads finds them, with
// what chat applications make titles from.
func TestGraphIsNamed(t *testing.T) {
	r := newRig(t, false)
	thread := r.thread()
	r.do("POST", "/threads/"+thread+"/runs/wait", says("hi", ""))
	for _, body := range []string{`{"metadata":{"graph_id":"agent"}}`, `{"metadata":{"assistant_id":"fe096781-5601-53d2-b2f6-0d3403f7e9ca"}}`} {
		var list []struct {
			ID     string `json:"thread_id"`
			Values struct{ Messages []struct{ Content string } }
		}
		r.do("POST", "/threads/search", body).into(t, &list)
		if len(list) != 1 || list[0].ID != thread || len(list[0].Values.Messages) != 2 || list[0].Values.Messages[0].Content != "hi" {
			t.Errorf("search %s = %+v", body, list)
		}
	}
}

func TestSuperstepsMakeAState(t *testing.T) {
	r := newRig(t, false)
	var made struct {
		ID     string `json:"thread_id"`
		Values struct{ Messages []struct{ Content string } }
	}
	r.do("POST", "/threads", `{"supersteps":[
		{"updates":[{"values":{"messages":[{"role":"user","content":"one"}]},"as_node":"__start__"}]},
		{"updates":[{"command":{"update":{"messages":[{"role":"assistant","content":"two"}]}},"as_node":"agent"}]}]}`).into(t, &made)
	if m := made.Values.Messages; len(m) != 2 || m[1].Content != "two" {
		t.Errorf("values = %+v", made.Values)
	}
}

// TestStates: the same state by all of its ways, and a branch from an older one.
func TestStates(t *testing.T) {
	r := newRig(t, false)
	thread := r.thread()
	r.do("POST", "/threads/"+thread+"/runs/wait", says("hi", ""))
	type ref struct {
		ID string `json:"checkpoint_id"`
	}
	var history []struct {
		Checkpoint *ref     `json:"checkpoint"`
		Parent     *ref     `json:"parent_checkpoint"`
		Next       []string `json:"next"`
		Values     struct{ Messages []any }
		Metadata   map[string]any
	}
	r.do("POST", "/threads/"+thread+"/history", `{"limit":10}`).into(t, &history)
	if len(history) != 3 || history[2].Parent != nil || history[0].Parent.ID != history[1].Checkpoint.ID || history[1].Next[0] != "agent" {
		t.Fatalf("history = %+v", history)
	}
	if m := history[2].Metadata; m["source"] != "input" || m["step"] != -1.0 || m["thread_id"] != thread || m["graph_id"] != "agent" || m["run_id"] == "" {
		t.Errorf("metadata = %v", m)
	}
	at := history[1].Checkpoint.ID
	one := r.do("GET", "/threads/"+thread+"/state/"+at, "")
	if other := r.do("POST", "/threads/"+thread+"/state/checkpoint", `{"checkpoint":{"checkpoint_id":"`+at+`","checkpoint_ns":""}}`); one.body != other.body {
		t.Errorf("GET %s, POST %s", one.body, other.body)
	}
	if got := r.do("GET", "/threads/"+thread+"/history?limit=1&before="+at, ""); !strings.Contains(got.body, history[2].Checkpoint.ID) || strings.Contains(got.body, `"checkpoint_id":"`+history[0].Checkpoint.ID) {
		t.Errorf("before = %s", got.body)
	}
	again := r.do("POST", "/threads/"+thread+"/runs/wait", `{"assistant_id":"agent","input":null,"checkpoint":{"checkpoint_id":"`+at+`","checkpoint_ns":"","checkpoint_map":null}}`)
	if again.status != 200 || !strings.Contains(again.body, "Yes.") {
		t.Errorf("from an older state = %d %s", again.status, again.body)
	}
	history = nil
	r.do("POST", "/threads/"+thread+"/history", `{}`).into(t, &history)
	siblings := 0
	for _, s := range history {
		if s.Parent != nil && s.Parent.ID == at {
			siblings++
		}
	}
	if siblings != 2 {
		t.Errorf("%d states come from it", siblings)
	}
	var changed struct{ Checkpoint ref }
	r.do("POST", "/threads/"+thread+"/state", `{"values":{"messages":[{"type":"human","content":"more"}]},"as_node":"agent"}`).into(t, &changed)
	if got := r.do("GET", "/threads/"+thread+"/state", ""); !strings.Contains(got.body, changed.Checkpoint.ID) || !strings.Contains(got.body, `"source":"update"`) {
		t.Errorf("changed = %s", got.body)
	}
	if got := r.do("PATCH", "/threads/"+thread+"/state", `{"metadata":{"note":"it"}}`); got.status != 200 {
		t.Errorf("annotate = %d %s", got.status, got.body)
	}
	if got := r.do("POST", "/threads/"+thread+"/history", `{"metadata":{"note":"it"}}`); !strings.Contains(got.body, changed.Checkpoint.ID) {
		t.Errorf("annotated = %s", got.body)
	}
}

func TestNoModel(t *testing.T) {
	r := newRig(t, false)
	r.unset = true
	thread := r.thread()
	if got := r.do("POST", "/threads/"+thread+"/runs/stream", says("hi", "")); got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, "set one") {
		t.Errorf("run = %d %s", got.status, got.body)
	}
	if got := r.do("GET", "/threads/"+thread, ""); got.status != 200 {
		t.Errorf("get = %d %s", got.status, got.body)
	}
}

func TestRoot(t *testing.T) {
	off := newRig(t, false)
	if got := off.do("GET", "root:/info", ""); got.status != 404 || !strings.Contains(got.body, `"request_id"`) {
		t.Errorf("off: /info = %d %s", got.status, got.body)
	}
	r := newRig(t, true)
	thread := r.thread()
	for _, tt := range []struct {
		method, path, body string
		status             int
		has                string
	}{
		{"GET", "root:/info", "", 200, `"flags"`},
		{"GET", "root:/threads/" + thread, "", 200, thread},
		{"POST", "root:/threads/search", "{}", 200, thread},
		{"POST", "root:/threads/" + thread + "/runs/wait", says("hi", ""), 200, "Yes."},
		{"POST", "root:/assistants/search", "{}", 200, "sandbox-agent"},
		{"GET", "root:/threads/" + nobody, "", 404, `"detail"`},
		// Sandboxes' paths are theirs.
		{"GET", "root:/threads/" + thread + "/files/download", "", 422, "Field required"},
		{"GET", "/threads/" + thread + "/files/download", "", 422, "Field required"},
		{"DELETE", "root:/threads/" + thread, "", 200, `{"status":"deleted"}`},
		{"GET", "root:/threads/" + thread, "", 404, ""},
		{"PUT", "root:/threads", "", 405, `"detail"`},
	} {
		if got := r.do(tt.method, tt.path, tt.body); got.status != tt.status || !strings.Contains(got.body, tt.has) {
			t.Errorf("%s %s = %d %s, want %d with %s", tt.method, tt.path, got.status, got.body, tt.status, tt.has)
		}
	}
}
