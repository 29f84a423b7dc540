package agentapi_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// posted is what a webhook got.
type posted struct {
	header http.Header
	body   map[string]any
	raw    string
}

// receive returns a URL, and what is posted to it.
func receive(t *testing.T) (url string, got <-chan posted) {
	t.Helper()
	c := make(chan posted, 10)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		p := posted{header: r.Header, raw: string(raw)}
		if err == nil {
			err = json.Unmarshal(raw, &p.body)
		}
		if err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		c <- p
	}))
	t.Cleanup(s.Close)
	return s.URL, c
}

// comes waits for what is posted.
func comes(t *testing.T, got <-chan posted) posted {
	t.Helper()
	select {
	case p := <-got:
		return p
	case <-time.After(20 * time.Second):
		t.Fatal("nothing was posted")
		return posted{}
	}
}

// TestWebhook: the end of a run is posted with the run and the state that it left, as
// LangGraph's servers do, and signed.
func TestWebhook(t *testing.T) {
	r := newRig(t, false)
	url, got := receive(t)
	asked := `,"webhook":"` + url + `/hook?x=1","metadata":{"m":1}`
	thread := r.thread()
	var run struct {
		ID     string `json:"run_id"`
		Kwargs map[string]any
	}
	r.do("POST", "/threads/"+thread+"/runs", says("hello", asked)).into(t, &run)
	if run.Kwargs["webhook"] != url+"/hook?x=1" {
		t.Errorf("kwargs %v", run.Kwargs)
	}
	p := comes(t, got)
	if p.body["run_id"] != run.ID || p.body["thread_id"] != thread || p.body["status"] != "success" || p.body["error"] != nil {
		t.Errorf("posted %s", p.raw)
	}
	messages := p.body["values"].(map[string]any)["messages"].([]any)
	if len(messages) != 2 || messages[1].(map[string]any)["content"] != "Yes." {
		t.Errorf("values %v", p.body["values"])
	}
	for _, name := range []string{"run_started_at", "run_ended_at", "webhook_sent_at", "created_at", "updated_at"} {
		if _, err := time.Parse(time.RFC3339, p.body[name].(string)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if p.body["metadata"].(map[string]any)["m"] != 1.0 || p.body["kwargs"] == nil {
		t.Errorf("posted %s", p.raw)
	}
	for _, name := range []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"} {
		if p.header.Get(name) == "" {
			t.Errorf("no header %s", name)
		}
	}

	// How it ends does not matter: one that fails, one that is canceled, one without a thread.
	r.do("POST", "/threads/"+thread+"/runs", says("fail", asked))
	if p := comes(t, got); p.body["status"] != "error" || !strings.Contains(p.body["error"].(string), "wrong key") || p.body["values"] == nil {
		t.Errorf("posted %s", p.raw)
	}
	r.do("POST", "/threads/"+thread+"/runs", says("wait", asked)).into(t, &run)
	r.waits()
	r.do("POST", "/threads/"+thread+"/runs/"+run.ID+"/cancel", "")
	if p := comes(t, got); p.body["status"] != "interrupted" || p.body["run_id"] != run.ID {
		t.Errorf("posted %s", p.raw)
	}
	if a := r.do("POST", "/runs/wait", says("hello", asked)); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if p := comes(t, got); p.body["status"] != "success" || len(p.body["values"].(map[string]any)["messages"].([]any)) != 2 {
		t.Errorf("posted %s", p.raw)
	}
	// A run that is taken back is as if it had not been.
	r.do("POST", "/threads/"+thread+"/runs", says("wait", asked)).into(t, &run)
	r.waits()
	r.do("POST", "/threads/"+thread+"/runs/"+run.ID+"/cancel?action=rollback&wait=1", "")
	r.do("POST", "/threads/"+thread+"/runs/wait", says("hello", asked))
	if p := comes(t, got); p.body["run_id"] == run.ID {
		t.Errorf("posted %s", p.raw)
	}
}

// TestWebhookOfALargeState: what is too large to be posted is left out, and that is said.
func TestWebhookOfALargeState(t *testing.T) {
	r := newRig(t, false)
	url, got := receive(t)
	if a := r.do("POST", "/runs", says(strings.Repeat("x", 5<<20), `,"webhook":"`+url+`"`)); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if p := comes(t, got); p.body["status"] != "success" || p.body["values"] != nil || p.body["values_omitted"] != true {
		t.Errorf("posted %.500s", p.raw)
	}
}

// TestWebhookRefused: a URL that cannot be posted to is refused when the run is made.
func TestWebhookRefused(t *testing.T) {
	r := newRig(t, false)
	for _, url := range []string{"/hook", "ftp://example.com", "http://10.0.0.1/", "http://169.254.169.254/", "http://u:p@example.com/"} {
		if a := r.do("POST", "/runs", says("hello", `,"webhook":"`+url+`"`)); a.status != 400 || !strings.Contains(a.body, "webhook") {
			t.Errorf("%s = %d %s", url, a.status, a.body)
		}
	}
	if a := r.do("POST", "/threads/search", `{}`); strings.TrimSpace(a.body) != "[]" {
		t.Errorf("threads are left: %s", a.body)
	}
}

// TestWebhookOverARestart: a run that the next daemon ends is posted by it.
func TestWebhookOverARestart(t *testing.T) {
	r := newRig(t, false)
	url, got := receive(t)
	var run struct {
		ID string `json:"run_id"`
	}
	r.do("POST", "/threads/"+r.thread()+"/runs", says("wait", `,"webhook":"`+url+`"`)).into(t, &run)
	r.waits()
	r.stop()
	r.start(false)
	r.waits()
	close(r.release)
	if p := comes(t, got); p.body["run_id"] != run.ID || p.body["status"] != "success" {
		t.Errorf("posted %s", p.raw)
	}
}
