package chat

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/client/agent"
)

func TestCommandLines(t *testing.T) {
	for line, want := range map[string]string{
		"/new": "/new|", " /model p/m ": "/model|p/m", "exit": "/exit|", "/quit": "/exit|", "q": "/exit|",
		"/etc/hosts is what?": "", "hello": "", "/new\nbut more": "", "exit now": "",
	} {
		got := ""
		if name, argument, ok := command(line); ok {
			got = name + "|" + argument
		}
		if got != want {
			t.Errorf("%q is %q, want %q", line, got, want)
		}
	}
	for line, want := range map[string]string{"/th": "/threads ", "/s": "/s", "/sh": "/show ", "/x": "/x", "hi": "hi", "/": "/"} {
		if got, pos := completion(line, len(line)); got != want || pos != len(want) {
			t.Errorf("%q is completed to %q at %d, want %q", line, got, pos, want)
		}
	}
}

func TestDecisionWords(t *testing.T) {
	allowed := []string{"approve", "edit", "reject"}
	for line, want := range map[string]string{"a": "approve", "Yes": "approve", "rej": "reject", "n": "reject", "e": "edit", "": "", "x": "", "approved": ""} {
		if got := word(line, allowed); got != want {
			t.Errorf("%q is %q, want %q", line, got, want)
		}
	}
	if got := word("e", []string{"approve"}); got != "" {
		t.Errorf("what is not allowed is %q", got)
	}
}

func TestCalls(t *testing.T) {
	chunk := func(id string, pieces ...agent.ToolCallChunk) *agent.Chunk {
		return &agent.Chunk{Message: agent.Message{Type: agent.AI, ID: id}, ToolCallChunks: pieces}
	}
	var l calls
	l.add(chunk("m1", agent.ToolCallChunk{ID: "c1", Name: "run", Args: `{"comm`}))
	l.add(chunk("m1", agent.ToolCallChunk{Args: `and":"ls\n\u001b[2J"}`}, agent.ToolCallChunk{Index: 1, ID: "c2", Name: "look", Args: "{}"}))
	l.print("c1", "out")
	if open := l.open(); len(open) != 2 || open[0].about() != "ls ?[2J" || open[0].output != "out" {
		t.Fatalf("open calls: %+v", open)
	}
	c := l.finish(agent.Message{ToolCallID: "c1", Status: "error", Content: json.RawMessage(`"{\"error\":\"no such\\nthing\"}"`)})
	if c == nil || !strings.HasPrefix(c.line(80), "▸ run  ls ?[2J  ") || !strings.HasSuffix(c.line(80), " s  failed: no such thing") {
		t.Errorf("the first call is %q", c.line(80))
	}
	if l.finish(agent.Message{ToolCallID: "c1"}) != nil {
		t.Error("a call ends twice")
	}
	if c := l.finish(agent.Message{ToolCallID: "unseen", Name: "other"}); c == nil || c.name != "other" {
		t.Errorf("a call that was not seen is %+v", c)
	}
	l.forget()
	if len(l.open()) != 0 || len(l.list) != 2 {
		t.Errorf("what is left: %d", len(l.list))
	}
	for range maxCalls + 10 {
		l.add(&agent.Chunk{Message: agent.Message{ID: "m", ToolCalls: []agent.ToolCall{{ID: "x" + strings.Repeat("y", len(l.list)), Name: "n", Args: json.RawMessage(`{}`)}}}})
	}
	if len(l.list) > maxCalls {
		t.Errorf("%d calls are remembered", len(l.list))
	}
	long := &call{name: "run", args: `{"command":"` + strings.Repeat("漢 ", 200) + `"}`}
	if got := long.head(1500*time.Millisecond, 40, "  ok"); wide(got) > 40 || !strings.HasSuffix(got, "  1.5 s  ok") {
		t.Errorf("a long call is %q", got)
	}
}

func TestFields(t *testing.T) {
	for raw, want := range map[string]string{
		`{"b":"x","a":"1\n2\n","n":null,"e":"","l":[1]}`: "  b: x\n  a:\n    1\n    2\n  l: [\n    1\n  ]\n",
		"plain\ntext\n": "plain\ntext\n",
		`{"broken":`:    "{\"broken\":\n",
		"":              "\n",
	} {
		if got := fields(raw); got != want {
			t.Errorf("%q is shown as %q, want %q", raw, got, want)
		}
	}
}

func TestLastLines(t *testing.T) {
	for text, want := range map[string][]string{
		"":                      nil,
		"a\nb\nc\n":             {"b", "c"},
		"10%\r50%\r100%\nx\r\n": {"100%", "x"},
		"\x1b[31ma\tb":          {"?[31ma    b"},
	} {
		if diff := cmp.Diff(want, lastLines(text, 2)); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

// TestShownIsFetchedFromTheDaemon alone: whatever host a URL names, and never beside the
// directory.
func TestShownIsFetchedFromTheDaemon(t *testing.T) {
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RequestURI()+" "+r.Header.Get("Authorization"))
		_, _ = w.Write([]byte("data"))
	}))
	defer s.Close()
	c := client.New(s.URL, client.WithToken("secret"))
	defer c.Close()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "1.png"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	show := &shown{c: c, dir: dir}
	lines := show.of(json.RawMessage(`{"display_outputs":[{"type":"image/png","url":"http://evil.example/v1/x%2Fy?path=a"},{"type":"text/plain","url":"/no"},
{"type":"image/png","url":"opaque:thing"}],"files":[{"path":"/workspace/a\u001b","size":3,"download_url":"http://d/x"}]}`))
	want := []string{filepath.Join(dir, "2.png"), `image/png could not be brought here: "opaque:thing" is no place at the daemon`, "/workspace/a? (3 B)  http://d/x"}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"/v1/x%2Fy?path=a Bearer secret"}, asked); diff != "" {
		t.Error(diff)
	}
	if show.of(json.RawMessage(`7`)) != nil || show.of(nil) != nil {
		t.Error("what is no artifact shows something")
	}
}

func TestExplained(t *testing.T) {
	var e *client.Error
	if err := explained(&client.Error{Code: client.Unready, Hint: "set one"}); !errors.As(err, &e) || !strings.HasPrefix(e.Hint, "set one\nfor example") {
		t.Errorf("the hint is %q", e.Hint)
	}
	if err := explained(&client.Error{Code: client.NotFound}); !errors.As(err, &e) || e.Hint != "" {
		t.Errorf("another error has the hint %q", e.Hint)
	}
}

func TestState(t *testing.T) {
	dir := t.TempDir()
	s := openState(func(name string) string { return map[string]string{"XDG_STATE_HOME": dir}[name] })
	if got := s.last(); got != "" {
		t.Errorf("before anything was kept there is %q", got)
	}
	if s.keep("t-1"); s.last() != "t-1" {
		t.Errorf("the last thread is %q", s.last())
	}
	if err := os.WriteFile(s.path, []byte("damaged"), 0o600); err != nil || s.last() != "" {
		t.Errorf("a damaged file gives %q, %v", s.last(), err)
	}
	nowhere := openState(func(string) string { return "" })
	if nowhere.keep("x"); nowhere.last() != "" {
		t.Error("without a place something is kept")
	}
}
