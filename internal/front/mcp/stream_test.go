package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// raw sends a message as no SDK does: so that every byte of the answer is seen.
func raw(ctx context.Context, t *testing.T, method, url, version, session, body string, header http.Header) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url+"/mcp", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	if version != "" {
		r.Header.Set("Mcp-Protocol-Version", version)
	}
	for k, v := range header {
		r.Header[k] = v
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// message is a request in the form of a revision.
func message(t *testing.T, version, method string, params object) (body string, header http.Header) {
	t.Helper()
	header = http.Header{}
	if version == modern {
		params["_meta"] = object{
			"io.modelcontextprotocol/protocolVersion": modern, "io.modelcontextprotocol/clientCapabilities": object{},
			"io.modelcontextprotocol/clientInfo": object{"name": "t", "version": "1"},
		}
		header["Mcp-Method"] = []string{method}
		for _, key := range []string{"name", "uri"} {
			if name, ok := params[key].(string); ok {
				header["Mcp-Name"] = []string{name}
			}
		}
	}
	b, err := json.Marshal(object{"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
	if err != nil {
		t.Fatal(err)
	}
	return string(b), header
}

// ask sends a request and returns the answer.
func ask(t *testing.T, url, version, session, method string, params object) (status int, kind string, answer object) {
	t.Helper()
	body, header := message(t, version, method, params)
	res := raw(t.Context(), t, http.MethodPost, url, version, session, body, header)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			text = []byte(data)
		}
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		t.Fatalf("%s is answered with %s %.200q", method, res.Status, text)
	}
	return res.StatusCode, res.Header.Get("Content-Type"), answer
}

// session begins a protocol session where a revision has them.
func session(t *testing.T, url, version string) string {
	t.Helper()
	if version == modern {
		return ""
	}
	res := raw(t.Context(), t, http.MethodPost, url, "", "", strings.ReplaceAll(initialize, "2025-11-25", version), nil)
	_, _ = io.Copy(io.Discard, res.Body)
	res.Body.Close()
	id := res.Header.Get("Mcp-Session-Id")
	raw(t.Context(), t, http.MethodPost, url, version, id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil).Body.Close()
	return id
}

var allVersions = []string{modern, older, "2025-06-18", "2025-03-26"}

// TestQuietCallLooksDead: the header of a call came with its first event, so
// that proxies and clients gave up on calls that print nothing.
func TestQuietCallLooksDead(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	s := client{url: d.URL}.connect(t)
	id := begin(t, s)
	for _, version := range allVersions {
		t.Run(version, func(t *testing.T) {
			body, header := message(t, version, "tools/call", object{"name": "execute_terminal", "arguments": object{
				"session_id": id, "command": "while [ ! -e go ]; do sleep 0.05; done; rm go; echo done", "timeout": 300,
			}})
			res := raw(t.Context(), t, http.MethodPost, d.URL, version, session(t, d.URL, version), body, header)
			defer res.Body.Close() // it is here although the command waits
			if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" || res.Header.Get("X-Accel-Buffering") != "no" {
				t.Errorf("the header is %s %v", res.Status, res.Header)
			}
			lines := bufio.NewReader(res.Body)
			first, err := lines.ReadString('\n')
			if want := map[bool]string{true: "id: ", false: ": ok\n"}[version == older]; !strings.HasPrefix(first, want) {
				t.Errorf("it begins with %q, %v, want %q", first, err, want)
			}
			good(t, s, "write_file", object{"session_id": id, "path": "go", "content": ""})
			rest, err := io.ReadAll(lines)
			if err != nil || !strings.Contains(string(rest), `"stdout":"done\n"`) {
				t.Errorf("it ends with %q, %v", rest, err)
			}
		})
	}
}

// TestDroppedStream: a client whose connection broke gets the answer with
// Last-Event-ID, whether it comes before the command has ended or after.
func TestDroppedStream(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	s := client{url: d.URL}.connect(t)
	id := begin(t, s)
	own := session(t, d.URL, older)
	for n, early := range []bool{true, false} {
		t.Run(fmt.Sprint("early=", early), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			body, _ := message(t, older, "tools/call", object{"name": "execute_terminal", "arguments": object{
				"session_id": id, "command": "while [ ! -e go ]; do sleep 0.05; done; rm go; echo done", "timeout": 300,
			}})
			res := raw(ctx, t, http.MethodPost, d.URL, older, own, body, nil)
			last := ""
			for lines := bufio.NewScanner(res.Body); lines.Scan(); {
				var ok bool
				if last, ok = strings.CutPrefix(lines.Text(), "id: "); ok {
					break
				}
			}
			cancel()
			res.Body.Close()
			end := func() {
				good(t, s, "write_file", object{"session_id": id, "path": "go", "content": ""})
				until(t, "the end", func() bool {
					return good(t, s, "get_output", object{"session_id": id, "command_id": n + 1})["status"] == "done"
				})
			}
			if !early {
				end()
			}
			header := http.Header{"Last-Event-Id": {last}}
			res = raw(t.Context(), t, http.MethodGet, d.URL, older, own, "", header)
			defer res.Body.Close()
			if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
				t.Fatalf("going on from %q: %s", last, res.Status)
			}
			if early {
				end()
			}
			text, err := io.ReadAll(res.Body)
			if err != nil || !strings.Contains(string(text), `"stdout":"done\n"`) || !strings.Contains(string(text), `"id":7`) {
				t.Errorf("the rest is %q, %v", text, err)
			}
		})
	}
	res := raw(t.Context(), t, http.MethodGet, d.URL, older, own, "", http.Header{"Last-Event-Id": {"nothing_3"}})
	defer res.Body.Close()
	if res.StatusCode != http.StatusBadRequest {
		t.Errorf("going on from nothing: %s", res.Status)
	}
}

// TestLargeResourceIsNoEvent: a resource of 3 MB made an event that Python's
// SDK refuses. An answer of one message is JSON.
func TestLargeResourceIsNoEvent(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	s := client{url: d.URL}.connect(t)
	id := begin(t, s)
	good(t, s, "execute_terminal", object{"session_id": id, "command": "head -c 3000000 /dev/zero | tr '\\0' 'x' > big"})
	for _, version := range allVersions {
		_, kind, answer := ask(t, d.URL, version, session(t, d.URL, version), "resources/read", object{"uri": "sandbox://" + id + "/workspace/big"})
		res, _ := answer["result"].(object)
		contents, _ := res["contents"].([]any)
		if len(contents) != 1 || kind != "application/json" {
			t.Errorf("%s: %s %.300v", version, kind, answer)
			continue
		}
		if text := contents[0].(object)["text"].(string); len(text) != 3_000_000 {
			t.Errorf("%s: %d bytes", version, len(text))
		}
		if scope := res["cacheScope"]; version == modern && scope != "private" {
			t.Errorf("%s: a private file may be kept as %v", version, scope)
		}
	}
}

// TestAnswersOfTheProtocol: errors that were plain text, empty lists of things
// that are not there, and codes of another revision.
func TestAnswersOfTheProtocol(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	for _, version := range allVersions {
		own := session(t, d.URL, version)
		for _, tt := range []struct {
			method string
			params object
			code   float64
		}{
			{"prompts/list", object{}, -32601},
			{"prompts/get", object{"name": "x"}, -32601},
			{"completion/complete", object{"ref": object{"type": "ref/prompt", "name": "x"}, "argument": object{"name": "a", "value": "b"}}, -32602},
			{"no/such/method", object{}, -32601},
			{"resources/read", object{"uri": "sandbox://00000000/workspace/x"}, map[bool]float64{true: -32602, false: -32002}[version == modern]},
			{"resources/read", object{"uri": "test://nothing"}, map[bool]float64{true: -32602, false: -32002}[version == modern]},
			{"tools/call", object{"name": "no_such_tool"}, -32602},
		} {
			status, kind, answer := ask(t, d.URL, version, own, tt.method, tt.params)
			e, _ := answer["error"].(object)
			if e["code"] != tt.code || answer["id"] != 7.0 {
				t.Errorf("%s: %s = %d %s %v, want code %v", version, tt.method, status, kind, answer, tt.code)
			}
			if version != modern && status != http.StatusOK {
				t.Errorf("%s: %s = %d", version, tt.method, status)
			}
		}
		if version == modern {
			continue
		}
		res := raw(t.Context(), t, http.MethodPost, d.URL, version, own, `{"jsonrpc":"2.0","method":"notifications/of_another_time"}`, nil)
		res.Body.Close()
		if res.StatusCode != http.StatusAccepted {
			t.Errorf("%s: an unknown notification = %s", version, res.Status)
		}
	}
}

// TestSixTools: who wants sandbox-agent's tools gets no others, and hears of
// no others.
func TestSixTools(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	eras(t, func(t *testing.T, version string) {
		s := client{url: d.URL, version: version, six: true}.connect(t)
		list, err := s.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]*sdk.Tool{}
		for _, tool := range list.Tools {
			names[tool.Name] = tool
		}
		six := []string{"create_session", "execute_code", "execute_terminal", "export_files", "import_files", "stop_session"}
		if got := slices.Sorted(maps.Keys(names)); !slices.Equal(got, six) {
			t.Errorf("tools = %q, want %q", got, six)
		}
		for _, tool := range []string{"execute_code", "execute_terminal"} {
			in, _ := names[tool].InputSchema.(object)
			limit, _ := in["properties"].(object)["timeout"].(object)
			if limit["minimum"] != 1.0 || limit["maximum"] != 300.0 || limit["default"] != 30.0 {
				t.Errorf("timeout of %s is %v", tool, limit)
			}
		}
		if text := s.InitializeResult().Instructions; strings.Contains(text, "start_command") || !strings.Contains(text, "create_session") {
			t.Errorf("the instructions are %q", text)
		}
		if _, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "list_sessions"}); err == nil {
			t.Error("another tool is there")
		}
		// Their limits are those of sandbox-agent: what is shown of a command, and
		// three sessions of a conversation.
		id := begin(t, s)
		out := good(t, s, "execute_terminal", object{"session_id": id, "command": "yes x | head -c 50001; yes y | head -c 120001 >&2"})
		for stream, most := range map[string]int{"stdout": 50_000, "stderr": 120_000} {
			first, rest, cut := strings.Cut(out[stream].(string), "\n\n... [truncated")
			note, last, _ := strings.Cut(rest, "] ...\n\n")
			if !cut || len(first) != most/2 || len(last) != most/2 || !strings.Contains(note, fmt.Sprintf("%d bytes total, showing first %d and last %d", most+1, most/2, most/2)) {
				t.Errorf("%s has %d bytes, then %q and %d bytes", stream, len(first), note, len(last))
			}
		}
		ids := []string{id, begin(t, s), begin(t, s)}
		if out := bad(t, s, "create_session", object{}); !strings.Contains(out["error"].(string), "Maximum sessions per conversation (3) reached") {
			t.Errorf("the fourth of a conversation: %v", out)
		}
		for _, id := range ids {
			good(t, s, "stop_session", object{"session_id": id})
		}
		if all, err := (client{url: d.URL, version: version}).connect(t).ListTools(t.Context(), nil); err != nil || len(all.Tools) != 18 {
			t.Errorf("all tools = %v, %v", all, err)
		}
	})
}

// TestHintOfAnotherMistake: a file that is not there was answered with a hint
// about sessions.
func TestHintOfAnotherMistake(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	s := client{url: d.URL}.connect(t)
	if hint := bad(t, s, "read_file", object{"session_id": "none", "path": "x"})["hint"].(string); !strings.Contains(hint, "create_session") {
		t.Errorf("without a session: %q", hint)
	}
	id := begin(t, s)
	if hint := bad(t, s, "read_file", object{"session_id": "none", "path": "x"})["hint"].(string); !strings.Contains(hint, "active session_ids") {
		t.Errorf("of another session: %q", hint)
	}
	if hint := bad(t, s, "read_file", object{"session_id": id, "path": "nothing"})["hint"].(string); hint == "" || strings.Contains(hint, "session") {
		t.Errorf("of a file: %q", hint)
	}
	begin(t, s)
	begin(t, s)
	out := bad(t, s, "create_session", object{})
	if hint := out["hint"].(string); !strings.Contains(hint, "--thread") || !strings.Contains(hint, "Cubby-Thread") {
		t.Errorf("of a fourth session: %v", out)
	}
}

// TestRequiredFieldsHaveNoDefault: clients filled command_id in with 0.
func TestRequiredFieldsHaveNoDefault(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	list, err := client{url: d.URL}.connect(t).ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		schema := tool.InputSchema.(map[string]any)
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if value, ok := schema["properties"].(map[string]any)[name.(string)].(map[string]any)["default"]; ok {
				t.Errorf("%s: %s is required and has the default %v", tool.Name, name, value)
			}
		}
	}
}
