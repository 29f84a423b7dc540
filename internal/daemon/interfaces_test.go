package daemon_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/llm/llmtest"
)

// onlySix asks for the tools of sandbox-agent alone.
type onlySix struct{}

func (onlySix) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Cubby-Tools", "six")
	return http.DefaultTransport.RoundTrip(r)
}

// thingsMade asks url for something and returns what a field of the answer says.
func thingsMade(t *testing.T, url, body, field string, header ...string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for _, name := range header {
		req.Header.Set(name, "x")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var answer bytes.Buffer
	if _, err := answer.ReadFrom(res.Body); err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(answer.Bytes(), &fields); err != nil {
		t.Fatal(err)
	}
	if session, ok := fields["session"].(map[string]any); ok {
		fields = session
	}
	id, _ := fields[field].(string)
	if id == "" {
		t.Fatalf("%s = %d %s", url, res.StatusCode, &answer)
	}
	return id
}

// madeOverMCP is a session that a client of MCP makes.
func madeOverMCP(t *testing.T, url string, c *http.Client) string {
	t.Helper()
	s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: url + "/mcp", HTTPClient: c}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	res, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "create_session", Arguments: map[string]any{}})
	if err != nil || res.IsError {
		t.Fatalf("create_session = %+v, %v", res, err)
	}
	id, _ := res.StructuredContent.(map[string]any)["session_id"].(string)
	return id
}

// obedient is a model that calls the tool that the user names, once, as "use: NAME".
func obedient(t *testing.T) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		reply := llmtest.Reply{Parts: []llm.Part{llm.Text{Text: "Done."}}, Stop: llm.StopEnd}
		for _, call := range []llm.ToolCall{{ID: "1", Name: "create_session", Arguments: "{}"}, {ID: "1", Name: "execute_terminal", Arguments: `{"command":"true"}`}} {
			if bytes.Contains(body, []byte("use: "+call.Name)) && !bytes.Contains(body, []byte(`"role":"tool"`)) {
				reply = llmtest.Reply{Parts: []llm.Part{call}, Stop: llm.StopTools}
			}
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range (llmtest.OpenAI{}).Events(reply) {
			_, _ = io.WriteString(w, e)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// madeByAgent is the sandbox that the agent makes when its model calls a tool.
func madeByAgent(t *testing.T, url, tool string) string {
	t.Helper()
	thread := thingsMade(t, url+"/agent/threads", "{}", "thread_id")
	run := thingsMade(t, url+"/agent/threads/"+thread+"/runs", `{"assistant_id":"agent","input":{"messages":[{"role":"user","content":"use: `+tool+`"}]}}`, "run_id")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/agent/threads/"+thread+"/runs/"+run+"/join", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		t.Fatal(err)
	}
	for b, err := range client.New(url).List(t.Context(), client.ListOptions{Thread: thread}) {
		if err != nil {
			t.Fatal(err)
		}
		return b.ID
	}
	t.Fatalf("it made none: %s", said)
	return ""
}

// TestEveryDoorHasItsLimits: what a sandbox made through a door may use is what
// the operator set for that door, and otherwise what its reference documents.
func TestEveryDoorHasItsLimits(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	host := admission.Host{CPUs: 12, MemoryBytes: 64 * gib, PIDs: 1 << 22, Files: 1 << 30}
	sandboxAgent := func(c *config.Config) *config.Limits { return &c.SandboxAgentLimits }
	own := client.Limits{MemoryBytes: 1 * gib, CPUs: 2, PIDs: 512, DiskBytes: 4 * gib}
	doors := []struct {
		name string
		make func(t *testing.T, url string) string
		// documented is what it gives when the operator says nothing.
		documented client.Limits
		set        func(c *config.Config) *config.Limits // the operator's setting; nil: there is none
		n          int                                   // of the setting
	}{
		{"v1", func(t *testing.T, url string) string {
			t.Helper()
			return thingsMade(t, url+"/v1/sandboxes", "{}", "id")
		}, own, nil, 0},
		{"agentbox", func(t *testing.T, url string) string {
			t.Helper()
			return thingsMade(t, url+"/sandbox.v1.SandboxService/CreateSession", "{}", "sessionId")
		}, client.Limits{MemoryBytes: 4 * gib, CPUs: 4, PIDs: 512, DiskBytes: 4 * gib}, func(c *config.Config) *config.Limits { return &c.AgentboxLimits }, 1},
		{"sandboxed", func(t *testing.T, url string) string {
			t.Helper()
			return thingsMade(t, url+"/sandbox", `{"external":{"user_id":"u","project_id":"p"}}`, "id")
		}, client.Limits{MemoryBytes: 10 * gib, CPUs: 12, PIDs: 1024, DiskBytes: 4 * gib}, func(c *config.Config) *config.Limits { return &c.SandboxedLimits }, 2},
		{"ecs-sandbox", func(t *testing.T, url string) string {
			t.Helper()
			return thingsMade(t, url+"/sandbox", `{"id":"ecs"}`, "id", "X-Sandbox-Secret")
		}, own, func(c *config.Config) *config.Limits { return &c.ECSLimits }, 3},
		{"MCP", func(t *testing.T, url string) string {
			t.Helper()
			return madeOverMCP(t, url, nil)
		}, own, func(c *config.Config) *config.Limits { return &c.MCPLimits }, 4},
		{"sandbox-agent", func(t *testing.T, url string) string {
			t.Helper()
			return madeOverMCP(t, url, &http.Client{Transport: onlySix{}})
		}, client.Limits{MemoryBytes: 2 * gib, CPUs: 2, PIDs: 512, DiskBytes: 4 * gib}, sandboxAgent, 5},
		// The agent's are as cubby's own unless the operator says what they get: those
		// are kept ready.
		{"the agent", func(t *testing.T, url string) string {
			t.Helper()
			return madeByAgent(t, url, "execute_terminal")
		}, own, sandboxAgent, 5},
		{"the agent's create_session", func(t *testing.T, url string) string {
			t.Helper()
			return madeByAgent(t, url, "create_session")
		}, own, sandboxAgent, 5},
	}
	model := obedient(t)
	start := func(set func(n int) config.Limits) string {
		return daemontest.Start(t, daemontest.Options{
			Host: host, Environ: map[string]string{"OPENAI_API_KEY": "sk-none", "OPENAI_BASE_URL": model},
			Config: func(c *config.Config) {
				c.AgentModel = "openai/one-model"
				for _, door := range doors {
					if door.set != nil {
						*door.set(c) = set(door.n)
					}
				}
			},
		}).URL
	}
	memory := func(n int) config.Limits { return config.Limits{MemoryBytes: int64(n) * 100 * mib} }
	everything := func(n int) config.Limits {
		return config.Limits{MemoryBytes: int64(n) * 100 * mib, CPUs: float64(n) + 0.5, PIDs: int64(100 + n), DiskBytes: int64(n) * gib}
	}
	unset, partly, whole := start(func(int) config.Limits { return config.Limits{} }), start(memory), start(everything)
	for _, door := range doors {
		t.Run(door.name, func(t *testing.T) {
			expect := func(when, url string, want client.Limits) {
				t.Helper()
				b, err := client.New(url).Get(t.Context(), door.make(t, url))
				if err != nil {
					t.Fatal(err)
				}
				got := b.Limits
				got.OpenFiles = 0 // what the host has of them
				if got != want {
					t.Errorf("%s: %+v, want %+v", when, got, want)
				}
			}
			expect("the operator says nothing", unset, door.documented)
			if door.set == nil {
				return
			}
			want := door.documented
			want.MemoryBytes = memory(door.n).MemoryBytes
			expect("the operator sets the memory", partly, want)
			o := everything(door.n)
			expect("the operator sets all", whole, client.Limits{MemoryBytes: o.MemoryBytes, CPUs: o.CPUs, PIDs: o.PIDs, DiskBytes: o.DiskBytes})
		})
	}
}

// TestTokensInHeadersOfDialects: the clients of ecs-sandbox send their token in a
// header of its own.
func TestTokensInHeadersOfDialects(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{Config: func(c *config.Config) { c.Tokens = "alice:s3cret" }})
	for header, want := range map[string]int{"X-Sandbox-Secret": http.StatusOK, "X-API-Key": http.StatusOK, "X-Other-Secret": http.StatusUnauthorized} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.URL+"/v1/sandboxes", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(header, "s3cret")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Body.Close(); err != nil || res.StatusCode != want {
			t.Errorf("%s: %d, %v, want %d", header, res.StatusCode, err, want)
		}
	}
}
