package toolset_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/agent/toolset"
	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestList(t *testing.T) {
	w := newWorld(t)
	list := w.thread("a").List()
	var names []string
	for _, tool := range list {
		names = append(names, tool.Name)
		var schema struct {
			Type       string
			Properties map[string]json.RawMessage
			Required   []string
		}
		if err := json.Unmarshal(tool.Schema, &schema); err != nil || schema.Type != "object" || tool.Description == "" {
			t.Errorf("%s: %s, %v", tool.Name, tool.Schema, err)
		}
		if slices.Contains(schema.Required, "session_id") {
			t.Errorf("%s needs a session", tool.Name)
		}
		if tool.Name != "create_session" && (schema.Properties["session_id"] == nil || schema.Properties["language"] == nil) {
			t.Errorf("%s: a session cannot be chosen: %s", tool.Name, tool.Schema)
		}
	}
	if len(names) != 17 || slices.Contains(names, "start_task") {
		t.Errorf("the tools are %q", names)
	}
	for name, want := range map[string]bool{"read_file": true, "search_files": true, "show_image": true, "list_ports": true, "execute_code": false, "edit_file": false, "none": false} {
		if w.ReadOnly(name) != want {
			t.Errorf("ReadOnly(%s) = %v", name, !want)
		}
	}
}

func TestOwnSession(t *testing.T) {
	w := newWorld(t)
	c := w.thread("a")
	c.bad("list_ports", object{}, "no session of its own for python yet")
	if ids := w.sessions("a"); len(ids) != 0 {
		t.Fatalf("a look made %q", ids)
	}
	var calls sync.WaitGroup
	for i := range 6 {
		calls.Go(func() {
			if _, r := c.call("execute_terminal", object{"command": fmt.Sprintf("echo %d >> calls", i)}); r.Failed {
				t.Error(r.Content)
			}
		})
	}
	calls.Wait()
	ids := w.sessions("a")
	if len(ids) != 1 {
		t.Fatalf("six calls at once made %q", ids)
	}
	own := ids[0]
	if out := c.good("execute_terminal", object{"command": "wc -l < calls", "session_id": own}); strings.TrimSpace(out["stdout"].(string)) != "6" || out["session_restarted"] != nil {
		t.Errorf("the own session has %v", out)
	}

	// Of another language, and one that was asked for.
	c.good("write_file", object{"path": "x", "content": "node", "language": "node"})
	other := c.good("create_session", object{})["session_id"].(string)
	if ids := w.sessions("a"); len(ids) != 3 || other == own {
		t.Fatalf("there are %q", ids)
	}
	if out := c.good("read_file", object{"path": "x", "language": "node"}); out["content"] != "node" {
		t.Errorf("the file of the node session is %v", out)
	}
	out := c.bad("create_session", object{}, "Maximum sessions per conversation (3) reached")
	if hint := out["hint"].(string); !strings.Contains(hint, "stop_session") || strings.Contains(hint, "header") || len(out["active_sessions"].([]any)) != 3 {
		t.Errorf("a full thread says %v", out)
	}
	c.bad("execute_code", object{"code": "1", "language": "cobol"}, "Fix the invalid parameters and try again.")

	// Another conversation has others, and sees none of these.
	d := w.thread("b")
	d.bad("read_file", object{"path": "x", "session_id": own}, "belongs to another conversation")

	// It is gone, and made again under the same id.
	c.good("stop_session", object{"session_id": own})
	for tool, args := range map[string]object{"list_files": {}, "execute_terminal": {"command": "ls"}} {
		out := c.good(tool, args)
		if again, _ := out["session_restarted"].(string); !strings.Contains(again, "was made again") || !strings.Contains(again, "files are lost") {
			t.Errorf("%s of one that is gone says %v", tool, out)
		}
		if out := c.good(tool, args); out["session_restarted"] != nil {
			t.Errorf("%s said so twice: %v", tool, out)
		}
		if !slices.Contains(w.sessions("a"), own) {
			t.Errorf("it is another one: %q", w.sessions("a"))
		}
		c.good("stop_session", object{})
	}
	if out := c.good("stop_session", object{}); out["success"] != false {
		t.Errorf("stopping none = %v", out)
	}
}

func TestLentSandbox(t *testing.T) {
	w := newWorld(t)
	for id, tenant := range map[string]string{"lent": "mine", "foreign": "others"} {
		ctx := auth.WithPrincipal(w.ctx, auth.Principal{Name: "x", Tenant: tenant})
		if _, err := w.Sandboxes().Create(ctx, lifecycle.CreateRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	c := w.thread("a", toolset.Options{Sandbox: "lent"})
	c.good("write_file", object{"path": "x", "content": "1"})
	if out := c.good("execute_terminal", object{"command": "cat x"}); out["stdout"] != "1" {
		t.Errorf("the sandbox has %v", out)
	}
	c.bad("stop_session", object{}, "the user's own")
	if ids := w.sessions("a"); len(ids) != 0 {
		t.Errorf("others were made: %q", ids)
	}
	w.thread("a").bad("read_file", object{"path": "x", "session_id": "lent"}, "another conversation")
	w.thread("a").bad("read_file", object{"path": "x", "session_id": "foreign"}, "not found")
	w.thread("a", toolset.Options{Sandbox: "foreign"}).bad("execute_terminal", object{"command": "id"}, "ValueError")
}

func TestMistakes(t *testing.T) {
	w := newWorld(t)
	c := w.thread("a")
	c.bad("format_disk", object{}, "there is no tool")
	c.bad("execute_terminal", object{"timeout": 301}, "Fix the invalid parameters")
	if r := c.Call(w.ctx, loopCall("execute_terminal", `["not", "an object"]`)); !r.Failed || !strings.Contains(r.Content, "INVALID_INPUT") {
		t.Errorf("no object: %+v", r)
	}
	if r := c.Call(w.ctx, loopCall("list_files", ``)); r.Failed {
		t.Errorf("no arguments: %+v", r)
	}
	c.bad("read_file", object{"path": "none"}, "no such file")
	c.bad("execute_terminal", object{"command": "ls", "session_id": "none"}, "Session 'none' not found")
	if ids := w.sessions("a"); len(ids) != 1 {
		t.Errorf("mistakes made %q", ids)
	}
}

func TestFiles(t *testing.T) {
	c := newWorld(t).thread("a")
	c.good("write_file", object{"path": "src/a.py", "content": "one\ntwo two\nthree\n"})
	c.good("write_file", object{"path": "src/b.txt", "content": "two\x1b[0m\n"})
	if out := c.good("edit_file", object{"path": "src/a.py", "old_string": "one\n", "new_string": ""}); out["replaced"] != 1.0 || out["size"] != 14.0 {
		t.Errorf("edit = %v", out)
	}
	c.bad("edit_file", object{"path": "src/a.py", "old_string": "one", "new_string": "x"}, "does not occur")
	c.bad("edit_file", object{"path": "src/a.py", "old_string": "two", "new_string": "x"}, "occurs 2 times")
	c.bad("edit_file", object{"path": "src/a.py", "old_string": "two", "new_string": "two"}, "the same as old_string")
	c.bad("edit_file", object{"path": "src/a.py", "old_string": "two"}, "new_string")
	c.bad("edit_file", object{"path": "none", "old_string": "two", "new_string": ""}, "no such file")
	c.good("edit_file", object{"path": "src/a.py", "old_string": "two", "new_string": "2", "replace_all": true})
	if out := c.good("read_file", object{"path": "src/a.py"}); out["content"] != "2 2\nthree\n" {
		t.Errorf("the file is %v", out)
	}
	if files := c.good("list_files", object{"recursive": true})["files"].([]any); len(files) != 3 {
		t.Errorf("the files are %v", files)
	}

	found := func(args object) (places []string) {
		t.Helper()
		for _, m := range c.good("search_files", args)["matches"].([]any) {
			m := m.(map[string]any)
			places = append(places, fmt.Sprintf("%s:%v:%s", strings.TrimPrefix(m["path"].(string), "/workspace/"), m["line"], m["text"]))
		}
		slices.Sort(places)
		return places
	}
	for _, tt := range []struct {
		args object
		want string
	}{
		{object{"pattern": "^t"}, "src/a.py:2:three src/b.txt:1:two\x1b[0m"},
		{object{"pattern": "^T", "ignore_case": true, "glob": "*.py"}, "src/a.py:2:three"},
		{object{"pattern": "[0-9] [0-9]", "path": "src/a.py"}, "src/a.py:1:2 2"},
		{object{"pattern": "-e $(touch /tmp/x) ';"}, ""},
	} {
		if got := strings.Join(found(tt.args), " "); got != tt.want {
			t.Errorf("search %v = %q, want %q", tt.args, got, tt.want)
		}
	}
	c.bad("search_files", object{"pattern": "("}, "the search failed")
	c.bad("search_files", object{"pattern": "x", "path": "nowhere"}, "the search failed")
	if out := c.good("search_files", object{"pattern": ".", "limit": 1}); len(out["matches"].([]any)) != 1 || out["truncated"] != true {
		t.Errorf("the first match is %v", out)
	}
}

// No change is lost when edits come at once.
func TestEditsAtOnce(t *testing.T) {
	c := newWorld(t).thread("a")
	const edits = 8
	var text strings.Builder
	for i := range edits {
		fmt.Fprintf(&text, "<%d>\n", i)
	}
	c.good("write_file", object{"path": "f", "content": text.String()})
	var all sync.WaitGroup
	done := make([]bool, edits)
	for i := range edits {
		all.Go(func() {
			for !done[i] {
				out, r := c.call("edit_file", object{"path": "f", "old_string": fmt.Sprintf("<%d>", i), "new_string": fmt.Sprintf("[%d]", i)})
				done[i] = !r.Failed
				if r.Failed && !strings.Contains(r.Content, "changed meanwhile") {
					t.Errorf("edit %d: %v", i, out)
					return
				}
			}
		})
	}
	all.Wait()
	if got := c.good("read_file", object{"path": "f"})["content"].(string); strings.Count(got, "[") != edits {
		t.Errorf("the file is %q", got)
	}
}

func TestLongOutput(t *testing.T) {
	c := newWorld(t).thread("a")
	out := c.good("execute_terminal", object{"command": "yes | head -c 10000000; echo FAILED; yes ä | head -c 60000 >&2; echo ERROR >&2"})
	for stream, want := range map[string][2]string{
		"stdout": {"... [truncated — 10000007 chars total, showing first 25000 and last 25000] ...", "y\nFAILED\n"},
		"stderr": {"... [truncated — 40006 chars total, showing first 10000 and last 10000] ...", "ä\nERROR\n"},
	} {
		if got := out[stream].(string); !strings.Contains(got, want[0]) || !strings.HasSuffix(got, want[1]) || !utf8.ValidString(got) || strings.Contains(got, "\ufffd") {
			t.Errorf("%s has %d bytes and ends with %q", stream, len(got), got[max(0, len(got)-100):])
		}
	}
	// JSON makes it longer.
	out = c.good("execute_terminal", object{"command": `head -c 1000000 /dev/zero | tr '\0' '\1'`})
	if got := out["stdout"].(string); !strings.Contains(got, "1000000 chars total") || len(got) < 5000 {
		t.Errorf("%d characters end with %q", len(got), got[max(0, len(got)-100):])
	}
	c.good("execute_terminal", object{"command": `head -c 99999 /dev/zero | tr '\0' '\1' > control; yes | head -c 300000 > text`})
	for name, size := range map[string]int{"control": 99_999, "text": 300_000} {
		for read, offset := 0, 0.0; read < size; {
			out := c.good("read_file", object{"path": name, "offset": offset, "limit": 100_000})
			n := len(out["content"].(string))
			if n == 0 || out["next_offset"].(float64) != offset+float64(n) {
				t.Fatalf("%s at %v: %d bytes, next is %v", name, offset, n, out["next_offset"])
			}
			read, offset = read+n, out["next_offset"].(float64)
		}
	}
	id := c.good("start_command", object{"command": "yes | head -c 500000"})["command_id"]
	if out := c.good("get_output", object{"command_id": id, "wait": 50}); out["more"] != true || out["next_offset"].(float64) < 10_000 {
		t.Errorf("the output is %.200v", out)
	}
}

func TestOutputIsToldWhileItComes(t *testing.T) {
	c := newWorld(t).thread("a")
	var mu sync.Mutex
	told := map[string]string{}
	pieces, went := 0, make(chan struct{}, 1)
	out, r := c.do(c.ctx, "execute_terminal", object{"command": "printf 'fi\\303'; sleep 0.1; printf '\\244rst\\n'; while [ ! -e go ]; do sleep 0.02; done; echo bad >&2; echo last"}, func(session, stream, text string) {
		mu.Lock()
		defer mu.Unlock()
		if !utf8.ValidString(text) || session == "" {
			t.Errorf("%s: %q", session, text)
		}
		pieces++
		told[stream] += text
		if strings.HasSuffix(told["stdout"], "rst\n") && len(went) == 0 {
			went <- struct{}{}
			go c.call("write_file", object{"path": "go", "content": ""})
		}
	})
	if r.Failed || len(went) != 1 || told["stdout"] != "fiärst\nlast\n" || told["stderr"] != "bad\n" || out["stdout"] != told["stdout"] {
		t.Errorf("told %q, and the result is %v", told, out)
	}
	told, pieces = map[string]string{}, 0
	c.do(c.ctx, "execute_terminal", object{"command": "yes | head -c 5000000"}, func(_, stream, text string) {
		pieces++
		told[stream] += text
	})
	if n := len(told["stdout"]); n < 200<<10 || n > 1<<20 {
		t.Errorf("%d bytes of much output were told, in %d pieces", n, pieces)
	}
}

// TestCancelledCommandKeepsItsOutput: the model goes on later, and has to know how far it came.
func TestCancelledCommandKeepsItsOutput(t *testing.T) {
	w := newWorld(t)
	c := w.thread("a")
	c.good("execute_terminal", object{"command": "true"})
	ctx, cancel := context.WithCancel(w.ctx)
	out, r := c.do(ctx, "execute_terminal", object{"command": "echo began; sleep 1000", "timeout": 300}, func(string, string, string) { cancel() })
	if !r.Failed || out["stdout"] != "began\n" || out["reason"] != "killed" {
		t.Errorf("the call was %s", r.Content)
	}
	if out := c.good("get_output", object{"command_id": 2, "wait": 50}); out["status"] == "running" || out["reason"] != "killed" {
		t.Errorf("the command is %v", out)
	}
}

func TestImages(t *testing.T) {
	w := newWorld(t)
	c := w.thread("a")
	noise := image.NewNRGBA(image.Rect(0, 0, 2500, 400))
	r := rand.New(rand.NewPCG(1, 2))
	for i := range noise.Pix {
		noise.Pix[i] = byte(r.Uint32())
	}
	var small, large bytes.Buffer
	if png.Encode(&small, image.NewNRGBA(image.Rect(0, 0, 4, 4))) != nil || png.Encode(&large, noise) != nil {
		t.Fatal("no image")
	}
	c.good("list_files", object{})
	ctx := auth.WithPrincipal(w.ctx, auth.Principal{Name: "me", Tenant: "mine"})
	id := w.sessions("a")[0]
	for name, data := range map[string][]byte{"a b.png": small.Bytes(), "large.png": large.Bytes(), "broken.png": append(bytes.Clone(small.Bytes()[:40]), 1, 2, 3), "text.png": []byte("no image")} {
		if _, err := w.Files().Write(ctx, id, name, bytes.NewReader(data), sandbox.FileWrite{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, images := range map[string]int{"a b.png": 1, "large.png": 1, "broken.png": 0} {
		for _, tool := range []string{"show_image", "read_file"} {
			_, r := c.call(tool, object{"path": name})
			a := artifactOf(t, r)
			if r.Failed || len(r.Images) != images || len(a.Displays) != 1 || a.Displays[0].Type != "image/png" {
				t.Fatalf("%s of %s: %d images, %s, %s", tool, name, len(r.Images), r.Artifact, r.Content)
			}
			for _, img := range r.Images {
				got, kind, err := image.Decode(bytes.NewReader(img.Data))
				if err != nil || len(img.Data) > 1<<20 || got.Bounds().Dx() > 2000 || "image/"+kind != img.MIME {
					t.Errorf("%s is seen as %d bytes of %s, %v", name, len(img.Data), img.MIME, err)
				}
			}
			if want := "http://api.test/v1/sandboxes/" + id + "/files?path=%2Fworkspace%2F" + strings.ReplaceAll(name, " ", "+"); a.Displays[0].URL != want {
				t.Errorf("it is at %s, want %s", a.Displays[0].URL, want)
			}
		}
	}
	c.bad("show_image", object{"path": "text.png"}, "is not a PNG")
}

func TestExportsAndPorts(t *testing.T) {
	c := newWorld(t).thread("a")
	c.good("write_file", object{"path": "out.csv", "content": "1"})
	_, r := c.call("export_files", object{"files": []object{{"source": "out.csv"}, {"source": "none"}}})
	if a := artifactOf(t, r); len(a.Files) != 1 || a.Files[0].Path != "/workspace/out.csv" || !strings.HasPrefix(a.Files[0].DownloadURL, "http://api.test/") {
		t.Errorf("exported: %s", r.Artifact)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // the fake's sandboxes have the host's ports
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	if out := c.good("preview_url", object{"port": port}); !strings.HasPrefix(out["url"].(string), "http://preview.test/") || out["public"] != false {
		t.Errorf("the port is seen at %v", out)
	}
	c.good("list_ports", object{})
	c.bad("preview_url", object{}, "Field required")
}

func TestInstructions(t *testing.T) {
	w := newWorld(t)
	ctx := auth.WithPrincipal(w.ctx, auth.Principal{Name: "me", Tenant: "mine"})
	thread := w.Thread(auth.Principal{Name: "me", Tenant: "mine"}, "a", toolset.Options{})
	read := func(want string) {
		t.Helper()
		if got, err := thread.Instructions(w.ctx); got != want || err != nil {
			t.Errorf("the instructions are %.80q, %v, want %.80q", got, err, want)
		}
	}
	read("")
	if ids := w.sessions("a"); len(ids) != 0 {
		t.Fatalf("reading them made %q", ids)
	}
	c := w.thread("a")
	c.good("list_files", object{})
	read("")
	c.good("write_file", object{"path": "AGENTS.md", "content": "be kind"})
	read("be kind")
	id := w.sessions("a")[0]
	if _, err := w.Sandboxes().Stop(ctx, id, 0); err != nil {
		t.Fatal(err)
	}
	read("be kind")
	if b, err := w.Sandboxes().Get(ctx, id); err != nil || b.State != sandbox.Stopped {
		t.Errorf("it is %s, %v", b.State, err)
	}
	c.good("write_file", object{"path": "AGENTS.md", "content": strings.Repeat("x", 40<<10)})
	if got, err := thread.Instructions(w.ctx); err != nil || len(got) > 33<<10 || !strings.Contains(got, "40960 chars total") {
		t.Errorf("long ones have %d bytes, %v", len(got), err)
	}
	if _, err := w.Sandboxes().Start(ctx, id); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Sandboxes().Sleep(ctx, id, false); err != nil {
		t.Fatal(err)
	}
	read("")
	if b, err := w.Sandboxes().Get(ctx, id); err != nil || b.State != sandbox.Sleeping {
		t.Errorf("it is %s, %v", b.State, err)
	}
}

func TestEnvironment(t *testing.T) {
	w := newWorld(t)
	ctx := auth.WithPrincipal(w.ctx, auth.Principal{Name: "me", Tenant: "mine"})
	if _, err := w.Sandboxes().Create(ctx, lifecycle.CreateRequest{ID: "lent", Spec: sandbox.Spec{Network: sandbox.Policy{Mode: sandbox.NetworkNone}}}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		options toolset.Options
		want    []string
	}{
		{toolset.Options{}, []string{`image "base"`, "Python, JavaScript (Node.js).", "/workspace", "1 GiB memory, 2 CPUs", "allow list of hosts: pypi.org", "300 seconds"}},
		{toolset.Options{Sandbox: "lent"}, []string{"Network: none."}},
	} {
		text, err := w.Thread(auth.Principal{Name: "me", Tenant: "mine"}, "a", tt.options).Environment(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range tt.want {
			if !strings.Contains(text, want) {
				t.Errorf("it lacks %q:\n%s", want, text)
			}
		}
	}
}
