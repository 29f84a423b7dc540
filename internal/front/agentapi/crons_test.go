package agentapi_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestCrons: a cron is made, shown, changed, found and removed as LangGraph's clients do.
func TestCrons(t *testing.T) {
	r := newRig(t, false)
	type cron struct {
		ID       string `json:"cron_id"`
		Thread   *string
		ThreadID *string `json:"thread_id"`
		Schedule string
		Timezone *string
		Next     *string `json:"next_run_date"`
		End      *string `json:"end_time"`
		OnEnd    *string `json:"on_run_completed"`
		Enabled  bool
		Metadata map[string]any
		Payload  map[string]any
	}
	var made, bound cron
	r.do("POST", "/runs/crons", says("hello", `,"schedule":"0 9 * * 1-5","timezone":"Europe/Berlin","end_time":"2099-01-01T00:00:00+00:00","metadata":{"a":1},
		"config":{"configurable":{"x":"y"},"tags":["t"]},"on_run_completed":"keep","stream_mode":["values"]`)).into(t, &made)
	if made.ThreadID != nil || made.Schedule != "0 9 * * 1-5" || *made.Timezone != "Europe/Berlin" || made.Next == nil || *made.End != "2099-01-01T00:00:00Z" ||
		*made.OnEnd != "keep" || !made.Enabled || made.Metadata["a"] != 1.0 {
		t.Errorf("made %+v", made)
	}
	if config := fmt.Sprint(made.Payload["config"]); !strings.Contains(config, "cron_id:"+made.ID) || !strings.Contains(config, "x:y") || made.Payload["input"] == nil {
		t.Errorf("payload %v", made.Payload)
	}
	thread := r.thread()
	r.do("POST", "/threads/"+thread+"/runs/crons", says("hello", `,"schedule":"@daily","enabled":false`)).into(t, &bound)
	if *bound.ThreadID != thread || bound.OnEnd != nil || bound.Enabled || bound.Next != nil || bound.Payload["multitask_strategy"] != "enqueue" {
		t.Errorf("bound %+v", bound)
	}
	for _, tt := range []struct{ body, want string }{
		{`{}`, bound.ID + made.ID}, {`{"sort_order":"asc"}`, made.ID + bound.ID}, {`{"thread_id":"` + thread + `"}`, bound.ID}, {`{"enabled":true}`, made.ID},
		{`{"assistant_id":"agent","limit":1}`, bound.ID}, {`{"offset":1}`, made.ID}, {`{"metadata":{"a":1}}`, made.ID}, {`{"metadata":{"a":2}}`, ""},
		{`{"assistant_id":"none"}`, ""}, {`{"sort_by":"next_run_date","sort_order":"asc"}`, bound.ID[:0] + made.ID + bound.ID},
	} {
		var list []cron
		r.do("POST", "/runs/crons/search", tt.body).into(t, &list)
		got := ""
		for _, c := range list {
			got += c.ID
		}
		if len(got) != len(tt.want) || tt.want != got && !strings.Contains(tt.body, "next_run_date") {
			t.Errorf("search %s = %s, want %s", tt.body, got, tt.want)
		}
	}
	if a := r.do("POST", "/runs/crons/count", `{"metadata":{"a":1}}`); strings.TrimSpace(a.body) != "1" {
		t.Errorf("count = %s", a.body)
	}
	if a := r.do("POST", "/runs/crons/search", `{"select":["cron_id"]}`); strings.Contains(a.body, "schedule") || a.header.Get("X-Pagination-Total") != "2" {
		t.Errorf("selected %s %v", a.body, a.header)
	}
	var changed cron
	r.do("PATCH", "/runs/crons/"+made.ID, `{"schedule":"*/5 * * * *","end_time":null,"metadata":{"b":2},"input":{"messages":[{"role":"user","content":"bye"}]},"on_run_completed":"delete"}`).into(t, &changed)
	if changed.Schedule != "*/5 * * * *" || changed.End != nil || changed.Metadata["a"] != 1.0 || changed.Metadata["b"] != 2.0 || *changed.OnEnd != "delete" ||
		!strings.Contains(fmt.Sprint(changed.Payload["input"]), "bye") || !strings.Contains(fmt.Sprint(changed.Payload["config"]), "x:y") || *changed.Next == *made.Next {
		t.Errorf("changed %+v", changed)
	}
	r.do("PATCH", "/runs/crons/"+made.ID, `{"enabled":false}`).into(t, &changed)
	if changed.Enabled || changed.Schedule != "*/5 * * * *" || !strings.Contains(fmt.Sprint(changed.Payload["input"]), "bye") {
		t.Errorf("changed %+v", changed)
	}
	if a := r.do("DELETE", "/runs/crons/"+made.ID, ""); a.status != 204 {
		t.Errorf("DELETE = %d %s", a.status, a.body)
	}
	// With its thread a cron goes too.
	r.do("DELETE", "/threads/"+thread, "")
	for _, id := range []string{made.ID, bound.ID} {
		if a := r.do("GET", "/runs/crons/"+id, ""); a.status != 404 {
			t.Errorf("GET = %d %s", a.status, a.body)
		}
	}
}

// TestCronsAreChecked: what a run may not have a cron may not either, and it is told when
// the cron is made.
func TestCronsAreChecked(t *testing.T) {
	r := newRig(t, false)
	for _, tt := range []struct {
		more, says string
		status     int
	}{
		{``, "schedule", 422},
		{`,"schedule":"* * * * * *"`, "schedule", 422},
		{`,"schedule":"@every 1s"`, "schedule", 422},
		{`,"schedule":"@daily","timezone":"Mars/Base"`, "timezone", 422},
		{`,"schedule":"@daily","end_time":"soon"`, "end_time", 422},
		{`,"schedule":"@daily","on_run_completed":"burn"`, "on_run_completed", 400},
		{`,"schedule":"@daily","multitask_strategy":"x"`, "multitask_strategy", 400},
		{`,"schedule":"@daily","webhook":"http://10.0.0.1/"`, "private", 422},
		{`,"schedule":"@daily","config":{"configurable":{"chat_model_api_key":"sk"}}`, "cannot be kept", 422},
		{`,"schedule":"@daily","context":{"chat_model_api_key":"sk"}`, "cannot be kept", 422},
		{`,"schedule":"@daily","command":{"resume":1}`, "command", 422},
		{`,"schedule":"@daily","metadata":{"x":"` + strings.Repeat("x", 300<<10) + `"}`, "bytes", 422},
	} {
		if a := r.do("POST", "/runs/crons", says("hello", tt.more)); a.status != tt.status || !strings.Contains(a.body, tt.says) {
			t.Errorf("%.100s = %d %.200s, want %d with %s", tt.more, a.status, a.body, tt.status, tt.says)
		}
	}
	if a := r.do("POST", "/threads/none/runs/crons", says("hello", `,"schedule":"@daily"`)); a.status != 404 {
		t.Errorf("in no thread = %d %s", a.status, a.body)
	}
	if a := r.do("POST", "/runs/crons", `{"assistant_id":"none","schedule":"@daily"}`); a.status != 404 {
		t.Errorf("of no assistant = %d %s", a.status, a.body)
	}
	for i := range 6 {
		want := 200
		if i == 5 {
			want = 403
		}
		if a := r.do("POST", "/runs/crons", says("hello", `,"schedule":"@daily"`)); a.status != want || want == 403 && !strings.Contains(a.body, "max-agent-crons-per-tenant") {
			t.Errorf("the %dth = %d %s", i+1, a.status, a.body)
		}
	}
	var list []struct {
		ID string `json:"cron_id"`
	}
	r.do("POST", "/runs/crons/search", `{"limit":1}`).into(t, &list)
	for _, body := range []string{`{"schedule":"x"}`, `{"webhook":"http://10.0.0.1/"}`, `{"config":{"configurable":{"chat_model_api_key":"sk"}}}`} {
		if a := r.do("PATCH", "/runs/crons/"+list[0].ID, body); a.status != 422 {
			t.Errorf("PATCH %s = %d %s", body, a.status, a.body)
		}
	}
}
