package daemon_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	sandboxv1 "github.com/cubbyhq/cubby/api/gen/sandbox/v1"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// told is what callers hear of a sandbox that was destroyed three minutes ago
// because nobody used it.
var told = regexp.MustCompile(`destroyed 3 minutes ago: idle`)

// schema is as much of a JSON schema as it takes to make a request.
type schema struct {
	Ref        string            `json:"$ref"`
	Type       any               `json:"type"`
	Enum       []any             `json:"enum"`
	Required   []string          `json:"required"`
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
	AnyOf      []schema          `json:"anyOf"`
}

type document struct {
	Paths map[string]map[string]struct {
		ID         string `json:"operationId"`
		Parameters []struct {
			Name   string `json:"name"`
			In     string `json:"in"`
			Schema schema `json:"schema"`
		} `json:"parameters"`
		Body struct {
			Content map[string]struct {
				Schema schema `json:"schema"`
			} `json:"content"`
		} `json:"requestBody"`
	} `json:"paths"`
	Components struct {
		Schemas map[string]schema `json:"schemas"`
	} `json:"components"`
}

// words are what fields of some names are filled with.
var words = map[string]any{
	"id": "box", "session_id": "box", "thread_id": "t", "seq": 1, "path": "f", "to": "g", "url": "https://example.com/r", "target": "example.com",
	"content": "x", "signal": "SIGINT", "files": []any{map[string]any{"source": "f"}}, "format": "zip", "dependencies": map[string]any{"x": ""},
	"cols": 80, "rows": 24, "mode": nil, "wait_seconds": nil, "follow": nil, "after": nil, "stream": nil, "limit": nil, "kinds": nil, "offset": nil,
	"packages": []any{"x"}, "file_paths": []any{"f"}, "command": "true", "cmd": "true", "recursive": nil,
	"keep_disk": nil, "archive": nil,
}

func (d *document) example(name string, s schema) any {
	if v, ok := words[name]; ok {
		return v
	}
	if s.Ref != "" {
		return d.example(name, d.Components.Schemas[s.Ref[strings.LastIndex(s.Ref, "/")+1:]])
	}
	if len(s.AnyOf) > 0 {
		return d.example(name, s.AnyOf[0])
	}
	if len(s.Enum) > 0 {
		return s.Enum[0]
	}
	if len(s.Properties) > 0 {
		object := map[string]any{}
		for _, name := range s.Required {
			object[name] = d.example(name, s.Properties[name])
		}
		return object
	}
	kind, _ := s.Type.(string)
	switch kind {
	case "integer", "number":
		return 1
	case "boolean":
		return true
	case "array":
		return []any{"f"}
	case "object":
		return map[string]any{}
	}
	return "x"
}

// What a destroyed sandbox still answers, and what is not about one.
var answersAllTheSame = map[string]string{
	"list-events": "its history is kept", "get-operation": "its history is kept", "list-execs": "its history is kept",
	"get-exec": "its history is kept", "exec-output": "its history is kept", "stream-exec": "its history is kept",
	"list-tasks": "its history is kept", "ecs-history": "its history is kept", "ecs-event": "its history is kept",
}

// TestGoneSandboxSaysWhatBecameOfIt asks every operation of the REST API and of
// the dialects that names a sandbox, every tool that takes a session, every call
// of the gRPC service and the terminal for a sandbox that ended by itself, and
// what has to run for one that was stopped so.
func TestGoneSandboxSaysWhatBecameOfIt(t *testing.T) {
	var late atomic.Int64
	d := daemontest.Start(t, daemontest.Options{Now: func() time.Time { return time.Now().Add(time.Duration(late.Load())) }})
	request := func(t *testing.T, method, path, kind, body string, header ...string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, d.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if kind != "" {
			req.Header.Set("Content-Type", kind)
		}
		for _, name := range header {
			req.Header.Set(name, "x")
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		answer, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(answer)
	}
	for id, idle := range map[string]string{
		"box": `,"idle_policy":"destroy","idle_timeout_seconds":60`, "rests": `,"idle_policy":"stop","idle_timeout_seconds":60,"auto_wake":"never"`, "here": `,"idle_policy":"always_on"`,
	} {
		if status, answer := request(t, "POST", "/v1/sandboxes", "application/json", `{"id":"`+id+`"`+idle+`}`); status != http.StatusCreated {
			t.Fatalf("create = %d %s", status, answer)
		}
	}
	if status, answer := request(t, "POST", "/v1/sandboxes/box/exec", "application/json", `{"cmd":"echo hi"}`); status != http.StatusOK {
		t.Fatalf("exec = %d %s", status, answer)
	}
	// The end of its command, which is use, may be noted after it was told.
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		late.Add(int64(time.Minute))
		status, _ := request(t, "GET", "/v1/sandboxes/box", "", "")
		if _, answer := request(t, "GET", "/v1/sandboxes/rests", "", ""); status == http.StatusNotFound && strings.Contains(answer, `"status":"stopped"`) {
			break
		}
		<-look.C
	}
	late.Store(int64(3*time.Minute + 20*time.Second))

	text, err := os.ReadFile("../../api/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc document
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	asked := 0
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if slices.Contains([]string{"open-terminal", "connect-port"}, op.ID) {
				continue // both below
			}
			if slices.Contains([]string{"get-code", "get-task", "list-task-events", "cancel-task", "answer-task", "restore-task"}, op.ID) {
				continue // they look into its history, in which there is no cell and no task
			}
			about := strings.Contains(path, "{id}") || strings.Contains(path, "{session_id}")
			url, query := path, []string{}
			for _, p := range op.Parameters {
				v := doc.example(p.Name, p.Schema)
				value, _ := json.Marshal(v)
				said := strings.Trim(string(value), `"`)
				switch {
				case p.In == "path":
					url = strings.ReplaceAll(url, "{"+p.Name+"}", said)
				case p.In == "query" && v != nil:
					query = append(query, p.Name+"="+said)
					about = about || p.Name == "session_id"
				}
			}
			if !about {
				continue
			}
			if len(query) > 0 {
				url += "?" + strings.Join(query, "&")
			}
			kind, body := "", ""
			for k, content := range op.Body.Content {
				if k == "application/json" || kind == "" {
					kind = k
				}
				if k == "application/json" {
					value, _ := json.Marshal(doc.example("", content.Schema))
					if body = string(value); op.ID == "git-add" {
						body = `{"all":true}`
					}
				}
			}
			asked++
			t.Run(op.ID, func(t *testing.T) {
				status, answer := request(t, strings.ToUpper(method), url, kind, body)
				if why := answersAllTheSame[op.ID]; why != "" {
					if status != http.StatusOK {
						t.Errorf("%s %s = %d %s, but %s", method, url, status, answer, why)
					}
					return
				}
				if status < 400 || status >= 500 || !told.MatchString(answer) {
					t.Errorf("%s %s %s = %d %s", method, url, body, status, answer)
				}
				if !slices.Contains([]string{"sandboxed-get", "sandboxed-delete", "sandboxed-exec"}, op.ID) {
					return
				}
				// The path is ecs-sandbox's too.
				if op.ID == "sandboxed-exec" {
					body = `{"cmd":"true"}`
				}
				status, answer = request(t, strings.ToUpper(method), url, kind, body, "X-Sandbox-Secret")
				if status != http.StatusNotFound || !told.MatchString(answer) || !strings.Contains(answer, "session_not_found") {
					t.Errorf("%s %s %s of ecs-sandbox = %d %s", method, url, body, status, answer)
				}
			})
		}
	}
	if asked < 70 {
		t.Errorf("%d operations name a sandbox", asked)
	}

	t.Run("a source of an import", func(t *testing.T) {
		_, answer := request(t, "POST", "/v1/sandboxes/here/imports", "application/json", `{"files":[{"session_id":"box","path":"/workspace/f"}]}`)
		if !told.MatchString(answer) {
			t.Error(answer)
		}
	})
	for _, path := range []string{"terminal", "ports/1/connect"} {
		t.Run(path, func(t *testing.T) {
			_, res, err := websocket.Dial(t.Context(), strings.Replace(d.URL, "http", "ws", 1)+"/v1/sandboxes/box/"+path, nil)
			if err == nil {
				t.Fatal("there is one")
			}
			if answer, _ := io.ReadAll(res.Body); !told.Match(answer) {
				t.Errorf("%v %s", err, answer)
			}
		})
	}

	service := sandboxv1.File_sandbox_v1_sandbox_proto.Services().ByName("SandboxService").Methods()
	for i := range service.Len() {
		method := string(service.Get(i).Name())
		if slices.Contains([]string{"CreateSession", "ListSessions", "DestroySession", "ExecStream"}, method) {
			continue // they make one, name none, answer false and stream
		}
		t.Run("gRPC/"+method, func(t *testing.T) {
			body := `{"sessionId":"box","command":"true","path":"f","packages":["x"]}`
			var known map[string]any
			_ = json.Unmarshal([]byte(body), &known)
			for name := range known {
				if service.Get(i).Input().Fields().ByJSONName(name) == nil {
					delete(known, name)
				}
			}
			in, _ := json.Marshal(known)
			if _, answer := request(t, "POST", "/sandbox.v1.SandboxService/"+method, "application/json", string(in)); !told.MatchString(answer) {
				t.Errorf("%s = %s", in, answer)
			}
		})
	}
	t.Run("gRPC/ExecStream", func(t *testing.T) {
		in := `{"sessionId":"box","command":"true"}`
		frame := string([]byte{0, 0, 0, 0, byte(len(in))}) + in
		if _, answer := request(t, "POST", "/sandbox.v1.SandboxService/ExecStream", "application/connect+json", frame); !told.MatchString(answer) {
			t.Error(answer)
		}
	})

	// One that rests and is not to wake says since when and why, wherever it has to run.
	const rested = "the sandbox is stopped (3 minutes ago: idle)"
	for _, tt := range []struct{ path, body, header string }{
		{"/v1/sandboxes/rests/exec", `{"cmd":"true"}`, ""},
		{"/v1/sandboxes/rests/code", `{"code":"1"}`, ""},
		{"/v1/sandboxes/rests/kernels", `{}`, ""},
		{"/v1/sandboxes/rests/packages", `{"dependencies":{"x":""}}`, ""},
		{"/v1/sandboxes/rests/git/status", `{}`, ""},
		{"/sandbox/rests/exec", `{"cmd":["true"]}`, ""},
		{"/sandbox/rests/exec", `{"cmd":"true"}`, "X-Sandbox-Secret"},
		{"/sandbox/rests/git/clone", `{"url":"https://example.com/r"}`, ""},
		{"/sandbox.v1.SandboxService/Exec", `{"sessionId":"rests","command":"true"}`, ""},
		{"/sandbox.v1.SandboxService/PipInstall", `{"sessionId":"rests","packages":["x"]}`, ""},
	} {
		header := []string{}
		if tt.header != "" {
			header = append(header, tt.header)
		}
		if status, answer := request(t, "POST", tt.path, "application/json", tt.body, header...); status < 400 || !strings.Contains(answer, rested) {
			t.Errorf("%s %s = %d %s", tt.path, tt.body, status, answer)
		}
	}
	if _, res, err := websocket.Dial(t.Context(), strings.Replace(d.URL, "http", "ws", 1)+"/v1/sandboxes/rests/terminal", nil); err == nil {
		t.Error("a sandbox that rests has a terminal")
	} else if answer, _ := io.ReadAll(res.Body); !strings.Contains(string(answer), rested) {
		t.Errorf("its terminal: %v %s", err, answer)
	}

	agent, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: d.URL + "/mcp"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	list, err := agent.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	tools := 0
	for _, tool := range list.Tools {
		var in schema
		written, _ := json.Marshal(tool.InputSchema)
		if err := json.Unmarshal(written, &in); err != nil {
			t.Fatal(err)
		}
		if _, takes := in.Properties["session_id"]; !takes || tool.Name == "stop_session" {
			continue // it answers false
		}
		tools++
		t.Run("MCP/"+tool.Name, func(t *testing.T) {
			arguments, _ := doc.example("", in).(map[string]any)
			arguments["session_id"] = "box"
			res, err := agent.CallTool(t.Context(), &sdk.CallToolParams{Name: tool.Name, Arguments: arguments})
			if err != nil {
				t.Fatal(err)
			}
			if answer, _ := json.Marshal(res); !told.Match(answer) {
				t.Errorf("%v = %s", arguments, answer)
			}
		})
	}
	if tools < 8 {
		t.Errorf("%d tools take a session", tools)
	}
}
