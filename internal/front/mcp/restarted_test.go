package mcp_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
)

// act does something to a session as others do.
func act(t *testing.T, d *daemontest.Daemon, id, what string) {
	t.Helper()
	res, err := http.Post(d.URL+"/v1/sandboxes/"+id+"/"+what, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", what, res.Status)
	}
}

// What begins anew for a call says so, in the answer of every tool that runs it.
func TestSessionThatWasStartedAgainWasNotTold(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	s := client{url: d.URL, thread: "restarted"}.connect(t)
	id := begin(t, s)
	tools := map[string]object{
		"execute_terminal": {"command": "true"}, "start_command": {"command": "true"},
		"import_files": {"files": []any{object{"file_content": "x", "destination": "x"}}},
	}
	told := func(tool string) string {
		t.Helper()
		args := object{"session_id": id}
		for k, v := range tools[tool] {
			args[k] = v
		}
		again, _ := good(t, s, tool, args)["session_restarted"].(string)
		return again
	}
	for tool := range tools {
		if again := told(tool); again != "" {
			t.Errorf("%s of one that runs: %q", tool, again)
		}
		act(t, d, id, "sleep")
		if again := told(tool); again != "" {
			t.Errorf("%s of one that slept well: %q", tool, again)
		}
		act(t, d, id, "stop")
		if again := told(tool); !strings.Contains(again, "started again") {
			t.Errorf("%s of one that was stopped: %q", tool, again)
		}
		act(t, d, id, "sleep")
		d.Faults.SetFail("Wake", errs.E(errs.NotFound, "the memory is damaged"))
		if again := told(tool); !strings.Contains(again, "memory") {
			t.Errorf("%s of one whose memory was lost: %q", tool, again)
		}
		d.Faults.SetFail("Wake", nil)
	}
	// One without a place for it in its answer says it in a text beside that.
	for _, args := range []object{{"session_id": id}, {"session_id": id, "path": "nothing"}} {
		act(t, d, id, "sleep")
		d.Faults.SetFail("Wake", errs.E(errs.NotFound, "the memory is damaged"))
		tool := "list_files"
		if args["path"] != nil {
			tool = "read_file"
		}
		for _, want := range []bool{true, false} {
			_, res := call(t, s, tool, args)
			text, _ := json.Marshal(res.Content[len(res.Content)-1])
			if told := strings.Contains(string(text), "session_restarted") && strings.Contains(string(text), "memory"); told != want {
				t.Errorf("%s = %s, want that it says so: %v", tool, text, want)
			}
		}
		d.Faults.SetFail("Wake", nil)
	}
}

// A session that dies at any moment of a call is told of: as a failure, or because
// the session was started again. A call before the death knows nothing of it.
func TestSessionThatDiedDuringACallWasNotTold(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	s := client{url: d.URL, thread: "dying"}.connect(t)
	for range 20 {
		id := begin(t, s)
		found, err := d.Driver.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var killer sync.WaitGroup
		killer.Go(func() {
			for _, f := range found {
				d.Driver.Kill(f.UID, driver.Death{Cause: driver.DeathSignal, Signal: "SIGKILL"})
			}
		})
		out, res := call(t, s, "execute_terminal", object{"session_id": id, "command": "true"})
		killer.Wait()
		_, told := out["session_restarted"]
		if !res.IsError && !told && diedFirst(t, d, id) {
			t.Errorf("after a death execute_terminal = %v", out)
		}
		good(t, s, "stop_session", object{"session_id": id})
	}
}

// diedFirst reports whether a session died before its first command began.
func diedFirst(t *testing.T, d *daemontest.Daemon, id string) bool {
	t.Helper()
	res, err := http.Get(d.URL + "/v1/sandboxes/" + id + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var history struct {
		Events []struct {
			Kind string `json:"kind"`
		} `json:"events"`
	}
	if err := json.NewDecoder(res.Body).Decode(&history); err != nil || len(history.Events) == 0 {
		t.Fatalf("%d events, %v", len(history.Events), err)
	}
	for _, e := range history.Events {
		switch e.Kind {
		case "sandbox.died":
			return true
		case "exec.started":
			return false
		}
	}
	return false
}
