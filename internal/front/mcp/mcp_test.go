package mcp_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		http.DefaultClient.CloseIdleConnections()
		os.Exit(code)
	}))
}

// The revisions that clients speak: one of each kind.
const (
	modern = "2026-07-28"
	older  = "2025-11-25"
)

// eras runs a test with clients of both kinds.
func eras(t *testing.T, test func(t *testing.T, version string)) {
	t.Helper()
	for _, version := range []string{modern, older} {
		t.Run(version, func(t *testing.T) { test(t, version) })
	}
}

// client is what a client is made from.
type client struct {
	url, version, thread, token string
	six                         bool
	options                     sdk.ClientOptions
}

// headers adds a client's headers to its requests.
type headers struct {
	c    client
	next http.RoundTripper
}

func (h headers) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if h.c.thread != "" {
		r.Header.Set("Cubby-Thread", h.c.thread)
	}
	if h.c.six {
		r.Header.Set("Cubby-Tools", "six")
	}
	if h.c.token != "" {
		r.Header.Set("Authorization", "Bearer "+h.c.token)
	}
	return h.next.RoundTrip(r)
}

func (c client) tryConnect(t *testing.T) (*sdk.ClientSession, error) {
	t.Helper()
	tr := &http.Transport{}
	transport := &sdk.StreamableClientTransport{
		Endpoint: c.url + "/mcp", HTTPClient: &http.Client{Transport: headers{c, tr}},
	}
	s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &c.options).
		Connect(t.Context(), transport, &sdk.ClientSessionOptions{ProtocolVersion: c.version})
	t.Cleanup(func() {
		if s != nil {
			_ = s.Close()
		}
		tr.CloseIdleConnections()
	})
	return s, err
}

func (c client) connect(t *testing.T) *sdk.ClientSession {
	t.Helper()
	s, err := c.tryConnect(t)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	return s
}

type object = map[string]any

// call calls a tool and returns what it answered, which must be the same in
// both forms.
func call(t *testing.T, s *sdk.ClientSession, tool string, args object) (object, *sdk.CallToolResult) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	res, err := s.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return structured(t, tool, res), res
}

func structured(t *testing.T, tool string, res *sdk.CallToolResult) object {
	t.Helper()
	out, ok := res.StructuredContent.(map[string]any)
	if !ok {
		t.Fatalf("%s: structured content is %T", tool, res.StructuredContent)
	}
	if len(res.Content) == 0 {
		t.Fatalf("%s: no content", tool)
	}
	var read object
	if err := json.Unmarshal([]byte(res.Content[0].(*sdk.TextContent).Text), &read); err != nil {
		t.Fatalf("%s: the text is no JSON: %v", tool, err)
	}
	for key := range out {
		if _, ok := read[key]; !ok {
			t.Errorf("%s: the text lacks %s", tool, key)
		}
	}
	return out
}

// good is call for what must succeed.
func good(t *testing.T, s *sdk.ClientSession, tool string, args object) object {
	t.Helper()
	out, res := call(t, s, tool, args)
	if res.IsError {
		t.Fatalf("%s(%v) = %v", tool, args, out)
	}
	return out
}

// bad is call for what must fail; it returns the failure.
func bad(t *testing.T, s *sdk.ClientSession, tool string, args object) object {
	t.Helper()
	out, res := call(t, s, tool, args)
	if !res.IsError || out["success"] != false {
		t.Fatalf("%s(%v) = %v, want a failure", tool, args, out)
	}
	return out
}

// begin creates a session.
func begin(t *testing.T, s *sdk.ClientSession) string {
	t.Helper()
	return good(t, s, "create_session", object{})["session_id"].(string)
}

func TestSession(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	eras(t, func(t *testing.T, version string) {
		s := client{url: d.URL, version: version}.connect(t)
		if got := s.InitializeResult().ProtocolVersion; got != version {
			t.Fatalf("the protocol is %s, want %s", got, version)
		}
		made := good(t, s, "create_session", object{"language": "python", "dependencies": object{}})
		id := made["session_id"].(string)
		if made["success"] != true || made["runtime"] != "python" || made["status"] != "running" || len(id) != 8 || strings.Trim(id, "0123456789abcdef") != "" {
			t.Errorf("create_session = %v", made)
		}
		out := good(t, s, "execute_terminal", object{"session_id": id, "command": "echo out; echo err >&2; exit 3"})
		if out["exit_code"] != 3.0 || out["stdout"] != "out\n" || out["stderr"] != "err\n" {
			t.Errorf("execute_terminal = %v", out)
		}
		if _, ok := out["success"]; ok {
			t.Errorf("execute_terminal has success: %v", out)
		}
		if out := good(t, s, "stop_session", object{"session_id": id}); out["success"] != true {
			t.Errorf("stop_session = %v", out)
		}
		if out := good(t, s, "stop_session", object{"session_id": id}); out["success"] != false {
			t.Errorf("a second stop_session = %v", out)
		}
	})
}
