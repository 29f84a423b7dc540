package mcp_test

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

func TestList(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	eras(t, func(t *testing.T, version string) {
		s := client{url: d.URL, version: version}.connect(t)
		about := s.InitializeResult()
		caps, err := json.Marshal(about.Capabilities)
		if err != nil || strings.Contains(string(caps), "logging") || about.Capabilities.Tools == nil || about.Capabilities.Resources == nil || !strings.Contains(about.Instructions, "create_session") {
			t.Errorf("the server says of itself: %+v", about)
		}
		list, err := s.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
			in, _ := tool.InputSchema.(map[string]any)
			out, _ := tool.OutputSchema.(map[string]any)
			if in["type"] != "object" || out["type"] != "object" || tool.Title == "" || tool.Description == "" || tool.Annotations == nil {
				t.Errorf("%s is not complete: %+v", tool.Name, tool)
			}
		}
		want := []string{
			"answer_task", "cancel_task", "create_session", "execute_code", "execute_terminal", "export_files", "get_output", "get_task",
			"import_files", "kill_command", "list_files", "list_sessions", "read_file", "restore_task", "start_command", "start_task",
			"stop_session", "write_file",
		}
		if !slices.Equal(names, want) {
			t.Errorf("tools = %v, want %v", names, want)
		}
		templates, err := s.ListResourceTemplates(t.Context(), nil)
		if err != nil || len(templates.ResourceTemplates) != 2 || templates.ResourceTemplates[0].URITemplate != "sandbox-output://{session_id}/{command_id}/{name}" ||
			templates.ResourceTemplates[1].URITemplate != "sandbox://{session_id}/{+path}" {
			t.Errorf("resource templates = %+v, %v", templates, err)
		}
	})
}

func TestInvalidInputComesFirst(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	s := client{url: d.URL}.connect(t)
	for tool, args := range map[string]object{
		"create_session":   {"language": "julia"},
		"execute_code":     {"session_id": "none", "code": "", "timeout": 301},
		"execute_terminal": {"session_id": "none"},
		"import_files":     {"session_id": "none", "files": []any{}},
		"export_files":     {"session_id": "none", "files": []any{object{}}},
		"stop_session":     {"session_id": ""},
		"read_file":        {"session_id": "none"},
		"write_file":       {"session_id": "none", "path": "x", "content": "?", "encoding": "base64"},
		"list_files":       {},
		"start_command":    {"session_id": "none", "command": ""},
		"get_output":       {"session_id": "none"},
		"kill_command":     {"session_id": "none", "command_id": 0},
		"start_task":       {"session_id": "none", "prompt": "x", "agent": "custom"},
		"get_task":         {"session_id": "none", "task_id": "x", "wait": 51},
		"cancel_task":      {"session_id": "none"},
		"answer_task":      {"session_id": "none", "task_id": "x", "question": ""},
		"restore_task":     {"session_id": "none", "task_id": ""},
	} {
		out := bad(t, s, tool, args)
		details, _ := out["details"].([]any)
		if out["error"] != "INVALID_INPUT" || len(details) == 0 || len(out) != 3 {
			t.Errorf("%s(%v) = %v", tool, args, out)
		}
	}
}

func TestFailuresSayWhatThereIs(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	s := client{url: d.URL, thread: "mine"}.connect(t)
	other := client{url: d.URL, thread: "other"}.connect(t)
	run := object{"session_id": "nothing1", "command": "true"}
	out := bad(t, s, "execute_terminal", run)
	if out["error"] != "ValueError: Session 'nothing1' not found" || out["hint"] != "No active sessions. Call create_session first." ||
		len(out["active_sessions"].([]any)) != 0 || out["traceback"] != nil {
		t.Errorf("without sessions: %v", out)
	}
	id := begin(t, s)
	theirs := begin(t, other)
	out = bad(t, s, "execute_terminal", run)
	active := out["active_sessions"].([]any)
	if out["hint"] != "Use one of the active session_ids listed above." || len(active) != 1 {
		t.Fatalf("with a session: %v", out)
	}
	if one := active[0].(object); one["session_id"] != id || one["runtime"] != "python" || one["status"] != "running" {
		t.Errorf("active_sessions = %v", active)
	}
	for tool, args := range map[string]object{
		"execute_code": {"code": "1"}, "execute_terminal": {"command": "true"}, "stop_session": {}, "read_file": {"path": "x"},
		"write_file": {"path": "x", "content": "x"}, "list_files": {}, "start_command": {"command": "true"}, "get_output": {"command_id": 1},
		"kill_command": {"command_id": 1}, "export_files": {"files": []any{object{"source": "x"}}},
		"start_task": {"prompt": "x"}, "get_task": {"task_id": "x"}, "cancel_task": {"task_id": "x"}, "restore_task": {"task_id": "x"},
		"answer_task":  {"task_id": "x", "question": "q", "option": "o"},
		"import_files": {"files": []any{object{"file_content": "x", "destination": "x"}}},
	} {
		args["session_id"] = theirs
		if out := bad(t, s, tool, args); out["error"] != "PermissionError: Session '"+theirs+"' belongs to another conversation" {
			t.Errorf("%s of another conversation: %v", tool, out)
		}
	}
	sessions := good(t, s, "list_sessions", object{})["sessions"].([]any)
	if len(sessions) != 1 || sessions[0].(object)["session_id"] != id {
		t.Errorf("list_sessions = %v", sessions)
	}
	if out := good(t, other, "list_files", object{"session_id": theirs}); len(out["files"].([]any)) != 0 {
		t.Errorf("the other one's files: %v", out)
	}
}

// TestCaps: three sessions of a conversation and five of all, with the words
// that clients of sandbox-agent know.
func TestCaps(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	s := client{url: d.URL, thread: "one"}.connect(t)
	for range 3 {
		begin(t, s)
	}
	const perThread = "RuntimeError: Maximum sessions per conversation (3) reached. Stop an existing session first."
	if out := bad(t, s, "create_session", object{}); !strings.HasPrefix(out["error"].(string), perThread) || len(out["active_sessions"].([]any)) != 3 {
		t.Errorf("the fourth of a conversation: %v", out)
	}
	s = client{url: d.URL, thread: "two"}.connect(t)
	begin(t, s)
	begin(t, s)
	const overAll = "RuntimeError: Maximum number of sessions (5) reached. Stop an existing session first."
	if out := bad(t, s, "create_session", object{}); !strings.HasPrefix(out["error"].(string), overAll) {
		t.Errorf("the sixth of all: %v", out)
	}
}

func TestTerminal(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	s := client{url: d.URL}.connect(t)
	id := begin(t, s)
	run := func(command string, timeout int) object {
		return good(t, s, "execute_terminal", object{"session_id": id, "command": command, "timeout": timeout})
	}
	if out := run("echo before; sleep 600", 1); out["reason"] != "timeout" || out["stdout"] != "before\n" || out["message"] != "Execution timed out after 1s" {
		t.Errorf("a command that takes too long: %v", out)
	}
	out, res := call(t, s, "execute_terminal", object{"session_id": id, "command": `head -c 60000 /dev/zero | tr '\0' x`})
	if got := out["stdout"].(string); len(got) > 51000 || strings.Trim(got, "x") != "\n\n... [truncated — 60000 bytes total, showing first 25000 and last 25000] ...\n\n" {
		t.Errorf("long output ends with %q", got[len(got)-100:])
	}
	link, ok := res.Content[1].(*sdk.ResourceLink)
	if !ok {
		t.Fatalf("content = %v", res.Content)
	}
	all, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: link.URI})
	if err != nil || all.Contents[0].Text != strings.Repeat("x", 60000) {
		t.Errorf("the whole output: %v", err)
	}
}

func TestCommands(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	eras(t, func(t *testing.T, version string) {
		s := client{url: d.URL, version: version}.connect(t)
		id := begin(t, s)
		defer good(t, s, "stop_session", object{"session_id": id})
		started := good(t, s, "start_command", object{"session_id": id, "command": "echo é1; echo err >&2; while [ ! -e go ]; do sleep 0.05; done; echo 2; exit 4"})
		n := started["command_id"]
		if started["success"] != true || n == 0.0 {
			t.Fatalf("start_command = %v", started)
		}
		var text, errors string
		offset := 0.0
		for !strings.Contains(text, "1\n") || !strings.Contains(errors, "err") {
			out := good(t, s, "get_output", object{"session_id": id, "command_id": n, "offset": offset})
			text, errors, offset = text+out["stdout"].(string), errors+out["stderr"].(string), out["next_offset"].(float64)
			if out["status"] == "done" {
				t.Fatalf("it ended early: %v", out)
			}
		}
		good(t, s, "write_file", object{"session_id": id, "path": "go", "content": ""})
		out := good(t, s, "get_output", object{"session_id": id, "command_id": n, "offset": offset, "wait": 50})
		if out["stdout"] != "2\n" || out["status"] != "done" || out["exit_code"] != 4.0 || text != "é1\n" {
			t.Errorf("in the end: %q and %v", text, out)
		}
		n = good(t, s, "start_command", object{"session_id": id, "command": "sleep 600"})["command_id"]
		if out := good(t, s, "kill_command", object{"session_id": id, "command_id": n}); out["success"] != true || out["status"] != "error" {
			t.Errorf("kill_command = %v", out)
		}
		if out := good(t, s, "get_output", object{"session_id": id, "command_id": n}); out["reason"] != "killed" {
			t.Errorf("what was killed: %v", out)
		}
		bad(t, s, "get_output", object{"session_id": id, "command_id": 99})
	})
}

func TestFiles(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	eras(t, func(t *testing.T, version string) {
		s := client{url: d.URL, version: version}.connect(t)
		id := begin(t, s)
		defer good(t, s, "stop_session", object{"session_id": id})
		if out := good(t, s, "write_file", object{"session_id": id, "path": "dir/a b.txt", "content": "héllo"}); out["size"] != 6.0 {
			t.Errorf("write_file = %v", out)
		}
		good(t, s, "write_file", object{"session_id": id, "path": "dir/a b.txt", "content": "ISE=", "encoding": "base64", "append": true})
		out := good(t, s, "read_file", object{"session_id": id, "path": "dir/a b.txt"})
		if out["content"] != "héllo!!" || out["encoding"] != "text" || out["more"] != false {
			t.Errorf("read_file = %v", out)
		}
		out = good(t, s, "read_file", object{"session_id": id, "path": "dir/a b.txt", "limit": 2})
		if out["content"] != "h" || out["next_offset"] != 1.0 || out["more"] != true {
			t.Errorf("a part that ends in a character: %v", out)
		}
		png := base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n\x00\x00"))
		good(t, s, "write_file", object{"session_id": id, "path": "p.png", "content": png, "encoding": "base64"})
		image, res := call(t, s, "read_file", object{"session_id": id, "path": "p.png"})
		if shown, ok := res.Content[len(res.Content)-1].(*sdk.ImageContent); !ok || shown.MIMEType != "image/png" || image["content"] != png || image["encoding"] != "base64" {
			t.Errorf("an image: %v, %v", image, res.Content)
		}
		files := good(t, s, "list_files", object{"session_id": id, "recursive": true})["files"].([]any)
		if len(files) != 3 {
			t.Errorf("list_files = %v", files)
		}
		bad(t, s, "read_file", object{"session_id": id, "path": "none"})
	})
}

func TestImportAndExport(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	eras(t, func(t *testing.T, version string) {
		s := client{url: d.URL, version: version, thread: "transfer " + version}.connect(t)
		a, b := begin(t, s), begin(t, s)
		defer good(t, s, "stop_session", object{"session_id": a})
		defer good(t, s, "stop_session", object{"session_id": b})
		in := good(t, s, "import_files", object{"session_id": a, "files": []any{
			object{"file_content": "a,b\n1,2\n", "encoding": "text", "destination": "data.csv"},
			object{"source": "raw.bin", "file_content": "AAEC", "encoding": "base64"},
			object{"file_content": "x", "destination": "sub/x"},
			object{"destination": "nothing"},
			object{"source": "/etc/passwd"},
		}})
		var lines []string
		for _, f := range in["files"].([]any) {
			f := f.(object)
			lines = append(lines, f["destination"].(string)+" "+strings.SplitN(f["error"].(string), " — ", 2)[0])
		}
		if in["success"] != false || in["error"] != "" || len(lines) != 5 || lines[0] != "/workspace/data.csv " || lines[1] != "/workspace/raw.bin " ||
			!strings.HasPrefix(lines[3], "nothing source or (session_id, path) is required") || !strings.Contains(lines[4], "denied") {
			t.Errorf("import_files = %v", in)
		}
		if out := good(t, s, "read_file", object{"session_id": a, "path": "raw.bin"}); out["content"] != "AAEC" {
			t.Errorf("raw.bin = %v", out)
		}
		out, res := call(t, s, "export_files", object{"session_id": a, "files": []any{
			object{"source": "data.csv", "destination": "ignored"}, object{"source": "sub"}, object{"source": "none"}, object{"source": "/etc/hostname"},
		}})
		files := out["files"].([]any)
		first := files[0].(object)
		if out["success"] != false || first["session_id"] != a || first["path"] != "/workspace/data.csv" || first["size"] != 8.0 || first["success"] != true ||
			files[1].(object)["success"] != true || files[2].(object)["success"] != false || files[3].(object)["success"] != false {
			t.Errorf("export_files = %v", out)
		}
		if url, ok := first["download_url"].(string); !ok || !strings.Contains(url, "session_id="+a) {
			t.Errorf("download_url = %v", first["download_url"])
		}
		link := res.Content[1].(*sdk.ResourceLink)
		got, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: link.URI})
		if err != nil || got.Contents[0].Text != "a,b\n1,2\n" {
			t.Errorf("the exported file as a resource: %v, %v", got, err)
		}
		in = good(t, s, "import_files", object{"session_id": b, "files": []any{
			object{"session_id": a, "path": first["path"], "destination": "copy.csv"}, object{"session_id": a, "path": "/workspace/raw.bin"},
		}})
		if files := in["files"].([]any); files[0].(object)["success"] != true || files[1].(object)["success"] != false {
			t.Errorf("import from a session = %v", in)
		}
		if out := good(t, s, "read_file", object{"session_id": b, "path": "copy.csv"}); out["content"] != "a,b\n1,2\n" {
			t.Errorf("copy.csv = %v", out)
		}
	})
}

func TestResources(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	eras(t, func(t *testing.T, version string) {
		s := client{url: d.URL, version: version}.connect(t)
		other := client{url: d.URL, version: version, thread: "other"}.connect(t)
		id := begin(t, s)
		defer good(t, s, "stop_session", object{"session_id": id})
		good(t, s, "write_file", object{"session_id": id, "path": "a b.json", "content": `{"a":1}`})
		good(t, s, "write_file", object{"session_id": id, "path": "bin", "content": "AP8B", "encoding": "base64"})
		good(t, s, "execute_terminal", object{"session_id": id, "command": "truncate -s 13M large; mkdir dir"})
		read := func(s *sdk.ClientSession, uri string) (*sdk.ResourceContents, error) {
			res, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
			if err != nil {
				return nil, err
			}
			return res.Contents[0], nil
		}
		base := "sandbox://" + id + "/workspace/"
		if c, err := read(s, base+"a%20b.json"); err != nil || c.Text != `{"a":1}` || c.MIMEType != "application/json" {
			t.Errorf("text = %+v, %v", c, err)
		}
		if c, err := read(s, base+"bin"); err != nil || string(c.Blob) != "\x00\xff\x01" {
			t.Errorf("binary = %+v, %v", c, err)
		}
		for _, uri := range []string{
			base + "none", base + "dir", base + "large", "sandbox://nothing1/workspace/x", "sandbox-output://" + id + "/99/0",
			"sandbox-output://" + id + "/1/0", "sandbox-output://" + id + "/x/stdout", "other://x/y", "sandbox://" + id,
		} {
			if c, err := read(s, uri); err == nil {
				t.Errorf("%s = %+v", uri, c)
			}
		}
		if c, err := read(other, base+"bin"); err == nil {
			t.Errorf("of another conversation: %+v", c)
		}
		gone := begin(t, s)
		good(t, s, "stop_session", object{"session_id": gone})
		for _, uri := range []string{"sandbox://" + gone + "/workspace/x", "sandbox-output://" + gone + "/1/stdout"} {
			if c, err := read(s, uri); err == nil || !strings.Contains(err.Error(), "destroyed ") {
				t.Errorf("%s of a destroyed session = %+v, %v", uri, c, err)
			}
			if c, err := read(other, uri); err == nil {
				t.Errorf("%s of another conversation: %+v, %v", uri, c, err)
			}
		}
	})
}
