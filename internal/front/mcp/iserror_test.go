package mcp_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
	"github.com/cubbyhq/cubby/internal/driver"
)

// TestIsError goes through docs/mcp.md: which outcomes of each tool are
// failures of it, under which name, and which are results. What code and a lack
// of memory do is in the end-to-end tests, which have kernels.
func TestIsError(t *testing.T) {
	const (
		input = "INVALID_INPUT"
		value = "ValueError: "
		perm  = "PermissionError: "
		run   = "RuntimeError: "
		died  = "CONTAINER_DIED: "
		none  = "" // a result
	)
	d := daemontest.Start(t, daemontest.Options{})
	eras(t, func(t *testing.T, version string) {
		s := client{url: d.URL, version: version, thread: "mine " + version}.connect(t)
		other := client{url: d.URL, version: version, thread: "other " + version}.connect(t)
		live, dead, theirs := begin(t, s), beginDead(t, d, s), begin(t, other)
		defer func() {
			good(t, s, "stop_session", object{"session_id": live})
			good(t, s, "stop_session", object{"session_id": dead})
			good(t, other, "stop_session", object{"session_id": theirs})
		}()
		good(t, s, "write_file", object{"session_id": live, "path": "dir/file", "content": "x"})
		ended := good(t, s, "execute_terminal", object{"session_id": live, "command": "exit 4"})
		if ended["exit_code"] != 4.0 {
			t.Fatalf("the first command = %v", ended)
		}
		one := func(entry object) []any { return []any{entry} }

		// Of every tool that takes a session.
		tools := map[string]object{
			"execute_code": {"code": "1"}, "execute_terminal": {"command": "true"}, "start_command": {"command": "true"},
			"import_files": {"files": one(object{"file_content": "x", "destination": "x"})},
			"export_files": {"files": one(object{"source": "dir/file"})}, "stop_session": {},
			"read_file": {"path": "dir/file"}, "write_file": {"path": "x", "content": "x"}, "list_files": {},
			"get_output": {"command_id": 1}, "kill_command": {"command_id": 1},
			"get_task": {"task_id": "x"}, "cancel_task": {"task_id": "x"}, "answer_task": {"task_id": "x", "question": "q", "option": "o"},
			"restore_task": {"task_id": "x"}, "start_task": {"prompt": "x"},
		}
		type row struct {
			tool string
			args object
			want string
		}
		with := func(args object, more object) object {
			all := object{}
			for _, m := range []object{args, more} {
				for k, v := range m {
					all[k] = v
				}
			}
			return all
		}
		rows := []row{
			{"create_session", object{"language": "julia"}, input},
			{"create_session", object{"dependencies": "six"}, input},
			{"create_session", object{"dependencies": object{"../x": ""}}, value},
			{"list_sessions", object{}, none},
		}
		for tool, args := range tools {
			unknown := value
			if tool == "stop_session" {
				unknown = none
			}
			rows = append(rows, row{tool, args, input}, row{tool, with(args, object{"session_id": 7}), input},
				row{tool, with(args, object{"session_id": "nothing1"}), unknown}, row{tool, with(args, object{"session_id": theirs}), perm})
		}
		// What has to run something needs a session that lives; files are there without it.
		for _, tool := range []string{"execute_code", "execute_terminal", "start_command", "import_files", "start_task"} {
			rows = append(rows, row{tool, with(tools[tool], object{"session_id": dead}), died})
		}
		for _, r := range []row{
			{"execute_code", object{"code": ""}, input},
			{"execute_code", object{"code": "1", "timeout": 301}, input},
			{"execute_terminal", object{"command": ""}, input},
			{"execute_terminal", object{"command": "no-such-program"}, none},
			{"execute_terminal", object{"command": "kill -9 $$"}, none},
			{"execute_terminal", object{"command": "sleep 60", "timeout": 1}, none},
			{"start_command", object{"command": "true", "timeout": -1}, input},
			{"start_command", object{"command": "false"}, none},
			{"get_output", object{"command_id": 0}, input},
			{"get_output", object{"command_id": 1}, none},
			{"get_output", object{"command_id": 99}, value},
			{"kill_command", object{"command_id": 1}, none},
			{"kill_command", object{"command_id": 99}, value},
			{"start_task", object{"prompt": ""}, input},
			{"start_task", object{"prompt": "x", "agent": "nobody"}, input},
			{"start_task", object{"prompt": "x", "resume": "none"}, value},
			{"get_task", object{"task_id": "none"}, value},
			{"cancel_task", object{"task_id": "none"}, value},
			{"answer_task", object{"task_id": "none", "question": "q", "option": "o"}, value},
			{"restore_task", object{"task_id": "none"}, value},
			{"import_files", object{"files": []any{}}, input},
			{"import_files", object{"files": one(object{"file_content": "?", "encoding": "base64", "destination": "x"})}, input},
			{"import_files", object{"files": one(object{"source": "/etc/shadow"})}, none},
			{"import_files", object{"files": one(object{"session_id": theirs, "path": "/workspace/x", "destination": "x"})}, none},
			{"export_files", object{"files": one(object{})}, input},
			{"export_files", object{"files": one(object{"source": "none"})}, none},
			{"read_file", object{"path": "none"}, value},
			{"read_file", object{"path": "dir"}, value},
			{"read_file", object{"path": "dir/file", "offset": -1}, input},
			{"write_file", object{"path": "x", "content": "?", "encoding": "base64"}, input},
			{"write_file", object{"path": "dir", "content": "x"}, value},
			{"write_file", object{"path": "dir/file/below", "content": "x"}, value},
			{"list_files", object{"path": "none"}, value},
			{"list_files", object{"path": "dir/file"}, value},
		} {
			r.args = with(r.args, object{"session_id": live})
			rows = append(rows, r)
		}
		seen := map[string]bool{}
		for _, r := range rows {
			seen[r.tool] = true
			out, res := call(t, s, r.tool, r.args)
			text, _ := out["error"].(string)
			_, hasActive := out["active_sessions"].([]any)
			hint, _ := out["hint"].(string)
			switch {
			case res.IsError != (r.want != none) || r.want != none && !strings.HasPrefix(text, r.want):
				t.Errorf("%s(%v) = %v, isError %t; want %q", r.tool, r.args, out, res.IsError, r.want)
			case r.want == input && (hasActive || out["details"] == nil), r.want != input && r.want != none && (!hasActive || hint == ""):
				t.Errorf("%s(%v) lacks what its kind of failure has: %v", r.tool, r.args, out)
			case r.want == died && out["session_id"] != dead:
				t.Errorf("%s(%v) = %v, of which session?", r.tool, r.args, out)
			case r.want == none && (out["details"] != nil || hasActive):
				t.Errorf("%s(%v) is a result with the fields of a failure: %v", r.tool, r.args, out)
			}
		}
		for range 2 { // the dead one has no place any more
			id := begin(t, s)
			defer good(t, s, "stop_session", object{"session_id": id})
		}
		if out := bad(t, s, "create_session", object{}); !strings.HasPrefix(out["error"].(string), run) {
			t.Errorf("a session too many: %v", out)
		}
		list, err := s.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range list.Tools {
			if !seen[tool.Name] {
				t.Errorf("%s: new tool; say here what its failures are", tool.Name)
			}
		}

		// Only what is no call of a tool is an error of the protocol.
		_, err = s.CallTool(t.Context(), &sdk.CallToolParams{Name: "no_such_tool"})
		var wire *jsonrpc.Error
		if !errors.As(err, &wire) || wire.Code != jsonrpc.CodeInvalidParams {
			t.Errorf("an unknown tool = %v", err)
		}
		if out, res := call(t, s, "list_files", nil); !res.IsError || out["error"] != input {
			t.Errorf("no arguments = %v", out)
		}
	})
}

// beginDead creates a session whose sandbox is ended from outside, and waits
// until the daemon knows.
func beginDead(t *testing.T, d *daemontest.Daemon, s *sdk.ClientSession) string {
	t.Helper()
	before, err := d.Driver.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := begin(t, s)
	all, err := d.Driver.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if !slices.ContainsFunc(before, func(b driver.Found) bool { return b.UID == f.UID }) {
			d.Driver.Kill(f.UID, driver.Death{Cause: driver.DeathSignal, Signal: "SIGKILL"})
		}
	}
	until(t, "the death of "+id, func() bool {
		for _, one := range good(t, s, "list_sessions", object{})["sessions"].([]any) {
			if one := one.(object); one["session_id"] == id {
				return one["status"] == "dead"
			}
		}
		return false
	})
	return id
}
