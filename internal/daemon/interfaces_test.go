package daemon_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// onlySix asks for the tools of sandbox-agent alone.
type onlySix struct{}

func (onlySix) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Cubby-Tools", "six")
	return http.DefaultTransport.RoundTrip(r)
}

// TestEveryDoorHasItsLimits: what a sandbox made through a door may use is what
// the operator set for that door, and otherwise what its reference documents.
func TestEveryDoorHasItsLimits(t *testing.T) {
	post := func(t *testing.T, url, body, field string, header ...string) string {
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
	agent := func(t *testing.T, url string, c *http.Client) string {
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
	doors := []struct {
		name string
		make func(t *testing.T, url string) string
		set  func(c *config.Config) *config.Limits
		// By default, where the host has as much; 0: all that it has.
		memory int64
	}{
		{"v1", func(t *testing.T, url string) string { t.Helper(); return post(t, url+"/v1/sandboxes", "{}", "id") }, nil, 1 << 30},
		{"agentbox", func(t *testing.T, url string) string {
			t.Helper()
			return post(t, url+"/sandbox.v1.SandboxService/CreateSession", "{}", "sessionId")
		}, func(c *config.Config) *config.Limits { return &c.AgentboxLimits }, 4 << 30},
		{"sandboxed", func(t *testing.T, url string) string {
			t.Helper()
			return post(t, url+"/sandbox", `{"external":{"user_id":"u","project_id":"p"}}`, "id")
		}, func(c *config.Config) *config.Limits { return &c.SandboxedLimits }, 10 << 30},
		{"ecs-sandbox", func(t *testing.T, url string) string {
			t.Helper()
			return post(t, url+"/sandbox", `{"id":"ecs"}`, "id", "X-Sandbox-Secret")
		}, func(c *config.Config) *config.Limits { return &c.ECSLimits }, 1 << 30},
		{"sandbox-agent", func(t *testing.T, url string) string {
			t.Helper()
			return agent(t, url, &http.Client{Transport: onlySix{}})
		}, func(c *config.Config) *config.Limits { return &c.SandboxAgentLimits }, 2 << 30},
		{"MCP", func(t *testing.T, url string) string { t.Helper(); return agent(t, url, nil) },
			func(c *config.Config) *config.Limits { return &c.MCPLimits }, 1 << 30},
	}
	memory := func(t *testing.T, url, id string) int64 {
		t.Helper()
		b, err := client.New(url).Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return b.Limits.MemoryBytes
	}
	asDocumented := daemontest.Start(t, daemontest.Options{})
	set := daemontest.Start(t, daemontest.Options{Config: func(c *config.Config) {
		for i, door := range doors {
			if door.set != nil {
				door.set(c).MemoryBytes = int64(i) * (100 << 20)
			}
		}
	}})
	for i, door := range doors {
		t.Run(door.name, func(t *testing.T) {
			if got := memory(t, asDocumented.URL, door.make(t, asDocumented.URL)); got > door.memory || got < min(door.memory, 1<<30) {
				t.Errorf("by default %d bytes, want %d or what the host has", got, door.memory)
			}
			if door.set == nil {
				return
			}
			if got, want := memory(t, set.URL, door.make(t, set.URL)), int64(i)*(100<<20); got != want {
				t.Errorf("%d bytes, the operator said %d", got, want)
			}
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
