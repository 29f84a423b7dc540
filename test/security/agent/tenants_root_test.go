//go:build root

package agent_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// operation is one of the OpenAPI document.
type operation struct {
	method, path string
}

// operations are those of the document that have a tag.
func (d *daemon) operations(tag string) (list []operation) {
	d.t.Helper()
	var document struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	d.must(operator, http.MethodGet, "/openapi.json", nil, &document)
	for path, methods := range document.Paths {
		for method, raw := range methods {
			var o struct{ Tags []string }
			if json.Unmarshal(raw, &o) == nil && slices.Contains(o.Tags, tag) {
				list = append(list, operation{strings.ToUpper(method), path})
			}
		}
	}
	return list
}

// TestAnotherTenantFindsNothing: each endpoint of the agent that the document has, asked
// by another tenant for what is this one's, is 404 or knows of nothing, and changes
// nothing. A new endpoint is asked without being added here.
func TestAnotherTenantFindsNothing(t *testing.T) {
	const word = "swordfish-3141"
	asking := make(chan struct{})
	m := newModel(t, func(w http.ResponseWriter, r *http.Request, a asked) {
		if user, _ := a.turn(); user == "wait" {
			close(asking)
			<-r.Context().Done()
			return
		}
		obey(w, r, a)
	})
	d := startTenants(t, m, "--agent-at-root")
	id := d.thread(acme)
	d.must(acme, http.MethodPatch, "/agent/threads/"+id, object{"metadata": object{"word": word}}, nil)
	d.run(acme, id, human("SAY "+word))
	var assistant struct {
		ID string `json:"assistant_id"`
	}
	d.must(acme, http.MethodPost, "/agent/assistants", object{"graph_id": "agent", "name": word, "metadata": object{"word": word}}, &assistant)
	var cron struct {
		ID string `json:"cron_id"`
	}
	d.must(acme, http.MethodPost, "/agent/runs/crons", object{
		"assistant_id": assistant.ID, "schedule": "0 0 1 1 *", "input": human(word)["input"], "metadata": object{"word": word},
	}, &cron)
	d.must(acme, http.MethodPut, "/agent/store/items", object{"namespace": []string{word}, "key": word, "value": object{"word": word}}, nil)
	d.must(acme, http.MethodPatch, "/v1/settings", object{"providers": object{"openrouter": object{"key": "sk-" + word}}}, nil)
	ended := d.runsOf(acme, id)[0]
	var going runRow
	d.must(acme, http.MethodPost, "/agent/threads/"+id+"/runs", human("wait"), &going)
	<-asking // the thread stays as it is from here on
	var state struct {
		Checkpoint struct {
			ID string `json:"checkpoint_id"`
		} `json:"checkpoint"`
	}
	d.must(acme, http.MethodGet, "/agent/threads/"+id+"/state", nil, &state)
	before := d.view(id, assistant.ID)

	asked := 0
	for _, o := range d.operations("langgraph") {
		for _, run := range []string{ended.ID, going.ID} {
			path := strings.NewReplacer(
				"{thread_id}", id, "{run_id}", run, "{assistant_id}", assistant.ID, "{checkpoint_id}", state.Checkpoint.ID, "{namespace}", "x", "{cron_id}", cron.ID,
			).Replace(o.path)
			if strings.Contains(path, "{") {
				t.Errorf("%s has a parameter that this test does not know", o.path)
				continue
			}
			// All that any of them wants, of this tenant's things; a batch is a list.
			body := object{
				"assistant_id": assistant.ID, "input": object{"messages": []object{}}, "thread_id": id, "run_ids": []string{run}, "thread_ids": []string{id},
				"ids": []string{id}, "checkpoint_id": state.Checkpoint.ID, "checkpoint": object{"checkpoint_id": state.Checkpoint.ID}, "metadata": object{"stolen": "yes"},
				"values": object{"messages": []object{{"role": "user", "content": "stolen"}}}, "graph_id": "agent", "version": 1,
			}
			if strings.HasSuffix(path, "/search") || strings.HasSuffix(path, "/count") {
				body = object{"ids": []string{id}}
			}
			var sent any = body
			switch {
			case o.method == http.MethodPost && (strings.HasSuffix(path, "/threads") || strings.HasSuffix(path, "/assistants")):
				sent = object{"graph_id": "agent"} // made with an id, it would be one of this tenant's own
			case strings.HasSuffix(path, "/batch"):
				sent = []object{body}
			case o.method == http.MethodGet || o.method == http.MethodDelete:
				sent = nil
			}
			asked++
			status, answer := d.do(other, o.method, path, sent)
			if strings.Contains(string(answer), word) || status < 300 && (strings.Contains(string(answer), id) || strings.Contains(string(answer), assistant.ID) || strings.Contains(string(answer), cron.ID)) {
				t.Errorf("%s %s: %d gives away %.300s", o.method, o.path, status, answer)
			}
			named := strings.Contains(o.path, "{thread_id}") || strings.Contains(o.path, "{assistant_id}") || strings.Contains(o.path, "{cron_id}")
			switch {
			case o.method == http.MethodDelete && o.path == "/threads/{thread_id}":
				// sandbox-agent's clients are told the same of every name.
			case named && status != http.StatusNotFound:
				t.Errorf("%s %s: %d %.300s, want 404", o.method, o.path, status, answer)
			case status >= 500:
				t.Errorf("%s %s: %d %.300s", o.method, o.path, status, answer)
			case strings.HasSuffix(path, "/search") && strings.TrimSpace(string(answer)) != "[]" && strings.Contains(o.path, "/threads"):
				t.Errorf("%s %s finds %.300s", o.method, o.path, answer)
			}
		}
	}
	if asked < 100 {
		t.Errorf("only %d requests were made: the document lacks the agent's endpoints", asked)
	}

	// A thread of the same name is another one.
	d.must(other, http.MethodPost, "/agent/threads", object{"thread_id": id}, nil)
	if status, answer := d.do(other, http.MethodGet, "/agent/threads/"+id+"/runs/"+going.ID+"/stream", nil); status != http.StatusNotFound {
		t.Errorf("a run in a thread of the same name: %d %.300s", status, answer)
	}
	if status, answer := d.do(other, http.MethodGet, "/agent/threads/"+id+"/state/"+state.Checkpoint.ID, nil); status != http.StatusNotFound {
		t.Errorf("a checkpoint in a thread of the same name: %d %.300s", status, answer)
	}
	d.must(other, http.MethodDelete, "/agent/threads/"+id, nil, nil)

	// Settings are the tenant's own.
	for _, path := range []string{"/v1/settings", "/settings"} {
		if status, answer := d.do(other, http.MethodGet, path, nil); status != http.StatusOK || strings.Contains(string(answer), "openrouter") || strings.Contains(string(answer), "3141") {
			t.Errorf("%s: %d %.500s", path, status, answer)
		}
	}
	// All of it is as it was, and the run goes on.
	if after := d.view(id, assistant.ID); after != before {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
	if r := d.runsOf(acme, id); len(r) != 2 || r[0].Status != "running" && r[0].Status != "pending" {
		t.Errorf("the runs are %+v", r)
	}
	d.must(acme, http.MethodPost, "/agent/threads/"+id+"/runs/"+going.ID+"/cancel?wait=true", nil, nil)
}

// view is what there is of a thread and an assistant, but for the times.
func (d *daemon) view(thread, assistant string) string {
	d.t.Helper()
	var v [3]map[string]json.RawMessage
	d.must(acme, http.MethodGet, "/agent/threads/"+thread, nil, &v[0])
	d.must(acme, http.MethodGet, "/agent/threads/"+thread+"/state", nil, &v[1])
	d.must(acme, http.MethodGet, "/agent/assistants/"+assistant, nil, &v[2])
	for _, fields := range v {
		delete(fields, "updated_at")
		delete(fields, "status") // of the run that begins
	}
	return string(encode(v))
}
