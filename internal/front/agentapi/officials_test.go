package agentapi_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// TestCommandsAsClientsSendThem: an empty goto or update is none, an update can be a list
// of pairs, a goto an object; what leads nowhere is 422.
func TestCommandsAsClientsSendThem(t *testing.T) {
	r := newRig(t, false)
	for _, tt := range []struct {
		command string
		status  int
		said    string // the last message
	}{
		{`{"goto":[],"update":[],"resume":null}`, 200, ""},
		{`{"update":[["messages",[{"role":"user","content":"hi"}]],["other",1]],"goto":"agent"}`, 200, "Yes."},
		{`{"update":[{"messages":[{"role":"user","content":"hi"}]}],"goto":["agent"],"graph":null}`, 200, "Yes."},
		{`{"goto":[{"node":"agent","input":{"messages":[{"role":"user","content":"hi"}]}}]}`, 200, "Yes."},
		{`{"goto":{"node":"agent","arg":{"messages":"hi"}}}`, 200, "Yes."},
		{`{"goto":{"node":"__end__"}}`, 200, ""},
		{`{"goto":["agent","tools"]}`, 422, ""},
		{`{"goto":"nowhere"}`, 422, ""},
		{`{"goto":[{"node":"nowhere"}]}`, 422, ""},
		{`{"goto":[{"node":"tools","input":{"name":"look","args":{},"id":"c"}}]}`, 422, ""},
		{`{"goto":7}`, 422, ""},
		{`{"update":7,"goto":"agent"}`, 422, ""},
		{`{"graph":"__parent__","goto":"agent"}`, 422, ""},
	} {
		t.Run(tt.command, func(t *testing.T) {
			thread := r.thread()
			got := r.do("POST", "/threads/"+thread+"/runs/wait", `{"assistant_id":"agent","command":`+tt.command+`}`)
			if got.status != tt.status || !strings.Contains(got.body, tt.said) {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
}

// TestMadeStates: a superstep can be the input, and an update a list.
func TestMadeStates(t *testing.T) {
	r := newRig(t, false)
	step := func(node, kind, id string) string {
		return `{"updates":[{"as_node":"` + node + `","values":{"messages":[{"type":"` + kind + `","content":"x","id":"` + id + `"}]}}]}`
	}
	for name, tt := range map[string]struct {
		steps []string
		next  string
		said  string
	}{
		"input alone":                {[]string{step("__input__", "human", "h")}, `"next":["agent"]`, "h"},
		"input and the agent":        {[]string{step("__input__", "human", "h"), step("agent", "ai", "a")}, `"next":[]`, "a"},
		"input, start and the agent": {[]string{step("__input__", "human", "h"), step("__start__", "human", "h"), step("agent", "ai", "a")}, `"next":[]`, "h a"},
	} {
		var made struct {
			ID string `json:"thread_id"`
		}
		r.do("POST", "/threads", `{"supersteps":[`+strings.Join(tt.steps, ",")+`]}`).into(t, &made)
		state := r.do("GET", "/threads/"+made.ID+"/state", "")
		if !strings.Contains(state.body, tt.next) || said(t, state) != tt.said {
			t.Errorf("%s: %s", name, state.body)
		}
	}
	if got := r.do("POST", "/threads", `{"supersteps":[{"updates":[{"as_node":"agent","command":{"goto":"tools"}}]}]}`); got.status != 422 {
		t.Errorf("a superstep that goes on: %d", got.status)
	}
	thread := "/threads/" + r.thread()
	r.do("POST", thread+"/state", `{"as_node":"agent","values":[{"messages":[{"type":"human","content":"1","id":"h1"}]},{"messages":{"type":"human","content":"2","id":"h2"}}]}`)
	if state := r.do("GET", thread+"/state", ""); said(t, state) != "h1 h2" {
		t.Errorf("a list of values: %s", state.body)
	}
}

// said is the ids of the messages of a state.
func said(t *testing.T, state answer) string {
	t.Helper()
	var s struct {
		Values struct {
			Messages []struct{ ID string }
		}
	}
	state.into(t, &s)
	var ids []string
	for _, m := range s.Values.Messages {
		ids = append(ids, m.ID)
	}
	return strings.Join(ids, " ")
}

// TestCancelAnswersWithTheEnd, whether it was asked to wait or not.
func TestCancelAnswersWithTheEnd(t *testing.T) {
	r := newRig(t, false)
	for _, query := range []string{"", "?wait=1", "?action=interrupt"} {
		thread := "/threads/" + r.thread()
		var run struct {
			ID     string `json:"run_id"`
			Status string
		}
		r.do("POST", thread+"/runs", says("wait", "")).into(t, &run)
		r.waits()
		r.do("POST", thread+"/runs/"+run.ID+"/cancel"+query, "").into(t, &run)
		if run.Status != "interrupted" {
			t.Errorf("%q: %s", query, run.Status)
		}
	}
}

// TestDeletingAnAssistantDeletesItsRuns, also one that goes on, and no others.
func TestDeletingAnAssistantDeletesItsRuns(t *testing.T) {
	r := newRig(t, false)
	var as struct {
		ID string `json:"assistant_id"`
	}
	r.do("POST", "/assistants", `{"graph_id":"agent"}`).into(t, &as)
	of := func(body string) string { return strings.Replace(body, `"agent"`, `"`+as.ID+`"`, 1) }
	one, two := "/threads/"+r.thread(), "/threads/"+r.thread()
	r.do("POST", one+"/runs/wait", of(says("hi", "")))
	r.do("POST", one+"/runs/wait", says("hi", ""))
	r.do("POST", two+"/runs", of(says("wait", "")))
	r.waits()
	if got := r.do("DELETE", "/assistants/"+as.ID, ""); got.status >= 300 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	for thread, want := range map[string]int{one: 1, two: 0} {
		var runs []json.RawMessage
		r.do("GET", thread+"/runs", "").into(t, &runs)
		if len(runs) != want {
			t.Errorf("%s has %s", thread, runs)
		}
	}
	if got := r.do("GET", one+"/state", ""); len(strings.Fields(said(t, got))) != 4 {
		t.Errorf("the thread has %s", got.body)
	}
}

// TestPartsOfThings: a list shows the fields that are asked for, and what is at a path.
func TestPartsOfThings(t *testing.T) {
	r := newRig(t, false)
	thread := "/threads/" + r.thread()
	r.do("POST", thread+"/runs/wait", says("hi", `,"config":{"metadata":{"a":1,"b":1}},"metadata":{"b":2}`))
	var runs []map[string]json.RawMessage
	for _, query := range []string{"?select=run_id&select=metadata", "?select=run_id,metadata", `?select=["run_id","metadata"]`} {
		r.do("GET", thread+"/runs"+query, "").into(t, &runs)
		if len(runs[0]) != 2 || string(runs[0]["metadata"]) != `{"a":1,"b":2}` {
			t.Errorf("%s: %s", query, runs)
		}
	}
	var found []struct {
		ID        string `json:"thread_id"`
		Status    string
		Extracted map[string]any
	}
	body := `{"select":["thread_id"],"extract":{"first":"values.messages[0].content","last":"values.messages[-1].content","status":"status","far":"values.messages[9].content","none":"values.x.y"}}`
	r.do("POST", "/threads/search", body).into(t, &found)
	want := map[string]any{"first": "hi", "last": "Yes.", "status": "idle", "far": nil, "none": nil}
	if len(found) != 1 || found[0].Status != "" || len(found[0].Extracted) != len(want) {
		t.Fatalf("found %+v", found)
	}
	for name, v := range want {
		if found[0].Extracted[name] != v {
			t.Errorf("%s is %v", name, found[0].Extracted[name])
		}
	}
	for _, extract := range []string{`{"a":""}`, `{"a":"values["}`, `{"a":"values[x]"}`, `{"a":"values[1]x"}`, `{"a":7}`} {
		if got := r.do("POST", "/threads/search", `{"extract":`+extract+`}`); got.status != 400 {
			t.Errorf("%s: %d", extract, got.status)
		}
	}
	many := strings.Join(slices.Repeat([]string{`"a%":"values"`}, 11), ",")
	for i := 0; strings.Contains(many, "%"); i++ {
		many = strings.Replace(many, "%", string(rune('a'+i)), 1)
	}
	if got := r.do("POST", "/threads/search", `{"extract":{`+many+`}}`); got.status != 422 {
		t.Errorf("eleven paths: %d", got.status)
	}
	var history []json.RawMessage
	at := r.do("GET", thread+"/state", "").body
	_, at, _ = strings.Cut(at, `"checkpoint_id":"`)
	r.do("POST", thread+"/history", `{"checkpoint":{"checkpoint_id":"`+at[:36]+`"}}`).into(t, &history)
	if len(history) != 1 {
		t.Errorf("the history of one checkpoint has %d", len(history))
	}
}

// TestWhatCannotBeDoneIsSaid with 422, and not left out.
func TestWhatCannotBeDoneIsSaid(t *testing.T) {
	r := newRig(t, false)
	thread := "/threads/" + r.thread()
	for _, tt := range []struct{ method, path, body string }{
		{"POST", "/threads", `{"ttl":{"ttl":60,"strategy":"delete"}}`},
		{"PATCH", thread, `{"ttl":60}`},
		{"POST", "/threads/search", `{"values":{"a":1}}`},
		{"POST", "/threads/count", `{"values":{"a":1}}`},
		{"POST", thread + "/runs", says("hi", `,"feedback_keys":["a"]`)},
		{"POST", "/runs/stream", says("hi", `,"langsmith_tracer":{"project_name":"p"}`)},
		{"POST", "/runs/batch", `[` + says("hi", `,"feedback_keys":["a"]`) + `]`},
		{"POST", thread + "/runs", says("hi", `,"checkpoint":{"checkpoint_ns":"tools:1"}`)},
		{"POST", thread + "/state", `{"values":{},"checkpoint":{"checkpoint_ns":"tools:1"}}`},
	} {
		if got := r.do(tt.method, tt.path, tt.body); got.status != 422 {
			t.Errorf("%s %s %s: %d %s", tt.method, tt.path, tt.body, got.status, got.body)
		}
	}
	if got := r.do("POST", "/threads", `{"ttl":null}`); got.status != 200 {
		t.Errorf("a ttl that is none: %d", got.status)
	}
}
