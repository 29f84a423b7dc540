//go:build root

package e2e_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	sdk "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/test/harness"
)

// agent is an MCP client of the official SDK.
type agent struct {
	t *testing.T
	*mcp.ClientSession
}

// overHTTP connects to a daemon. Version is the newest revision to speak, ""
// the newest of all.
func overHTTP(t *testing.T, url, version, thread string) agent {
	t.Helper()
	header := http.Header{"Authorization": {"Bearer s3cret"}}
	if thread != "" {
		header.Set("Cubby-Thread", thread)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	return connect(t, &mcp.StreamableClientTransport{
		Endpoint: url + "/mcp", HTTPClient: &http.Client{Transport: withHeader{header, transport}},
	}, version)
}

func connect(t *testing.T, transport mcp.Transport, version string) agent {
	t.Helper()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, nil).
		Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return agent{t, s}
}

type withHeader struct {
	header http.Header
	next   http.RoundTripper
}

func (w withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for k, v := range w.header {
		r.Header[k] = v
	}
	return w.next.RoundTrip(r)
}

type object = map[string]any

// call calls a tool and returns its answer.
func (a agent) call(tool string, args object) (object, *mcp.CallToolResult) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	res, err := a.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		a.t.Fatalf("%s: %v", tool, err)
	}
	out, ok := res.StructuredContent.(map[string]any)
	if !ok {
		a.t.Fatalf("%s: %v is no object", tool, res.StructuredContent)
	}
	return out, res
}

// does is call for what must not fail.
func (a agent) does(tool string, args object) object {
	a.t.Helper()
	out, res := a.call(tool, args)
	if res.IsError {
		a.t.Fatalf("%s: %v", tool, out)
	}
	return out
}

// runs runs code that must succeed.
func (a agent) runs(id, code string) object {
	a.t.Helper()
	out := a.does("execute_code", object{"session_id": id, "code": code, "timeout": 120})
	if out["success"] != true {
		a.t.Fatalf("%s: %v", code, out)
	}
	return out
}

// interpreter is what agents do with a session, whatever brings them there.
func (a agent) interpreter(id string) {
	t := a.t
	if out := a.runs(id, "x = 20\nprint('hello')\nx + 1"); out["stdout"] != "hello\n" || out["result"].(object)["text/plain"] != "21" {
		t.Errorf("a first cell: %v", out)
	}
	out := a.does("execute_code", object{"session_id": id, "code": "while True: pass", "timeout": 1})
	if raised, _ := out["error"].(object); out["success"] != false || raised["type"] != "TimeoutError" || raised["message"] != "Execution timed out after 1s" {
		t.Errorf("an endless loop: %v", out)
	}
	out = a.does("execute_code", object{"session_id": id, "code": "1 / 0", "timeout": 120})
	if raised, _ := out["error"].(object); out["success"] != false || raised["type"] != "ZeroDivisionError" {
		t.Errorf("code that raises: %v", out)
	}
	if out := a.runs(id, "x"); out["result"].(object)["text/plain"] != "20" {
		t.Errorf("the variable after it: %v", out)
	}

	out, res := a.call("execute_code", object{"session_id": id, "code": "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])", "timeout": 120})
	shown := out["display_outputs"].([]any)
	if len(shown) != 1 || shown[0].(object)["type"] != "image/png" {
		t.Fatalf("a plot: %v", out)
	}
	png, err := base64.StdEncoding.DecodeString(shown[0].(object)["data"].(string))
	image, ok := res.Content[1].(*mcp.ImageContent)
	if err != nil || !strings.HasPrefix(string(png), "\x89PNG") || !ok || string(image.Data) != string(png) {
		t.Errorf("the plot as an image: %v, %T", err, res.Content[1])
	}

	_, res = a.call("execute_code", object{"session_id": id, "code": "from IPython.display import SVG\nSVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')"})
	link, ok := res.Content[1].(*mcp.ResourceLink)
	if !ok {
		t.Fatalf("a drawing: %v", res.Content)
	}
	read, err := a.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: link.URI})
	if err != nil || !strings.Contains(read.Contents[0].Text, "<svg") || read.Contents[0].MIMEType != "image/svg+xml" {
		t.Errorf("the drawing as a resource: %v, %v", read, err)
	}

	out = a.runs(id, "print('x' * 60000)")
	if got := out["stdout"].(string); !strings.HasSuffix(got, "... [truncated — 60001 chars total, showing first 50000]") {
		t.Errorf("a lot of text ends with %q", got[max(0, len(got)-100):])
	}

	a.giveUp(id)
	if out := a.runs(id, "x, reached"); out["result"].(object)["text/plain"] != "(20, 'here')" {
		t.Errorf("after a cell that was given up: %v", out)
	}

	out, res = a.call("execute_code", object{
		"session_id": id, "code": "b = bytearray(16 << 30)\nfor i in range(0, len(b), 4096): b[i] = 1", "timeout": 300,
	})
	if !res.IsError || !strings.HasPrefix(out["error"].(string), "CONTAINER_DIED: OOM-killed") || out["session_id"] != id || out["hint"] == "" {
		t.Errorf("more memory than there is: %v", out)
	}
}

// giveUp cancels a call while its code runs.
func (a agent) giveUp(id string) {
	a.t.Helper()
	ctx, cancel := context.WithCancel(a.t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := a.CallTool(ctx, &mcp.CallToolParams{Name: "execute_code", Arguments: object{
			"session_id": id, "code": "import time\nreached = 'here'\nopen('reached', 'w').close()\ntime.sleep(250)", "timeout": 300,
		}})
		done <- err
	}()
	for {
		if _, res := a.call("read_file", object{"session_id": id, "path": "reached"}); !res.IsError {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		a.t.Errorf("the call = %v, want canceled", err)
	}
}

// TestMCPOverHTTP is a daemon with tokens and clients of both kinds of the
// protocol.
func TestMCPOverHTTP(t *testing.T) {
	t.Parallel()
	h := newReal(t, harness.Options{})
	url, err := h.start([]string{"--tokens", "me:s3cret"})
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			a := overHTTP(t, url, version, "")
			if got := a.InitializeResult().ProtocolVersion; got != version {
				t.Fatalf("the protocol is %s, want %s", got, version)
			}
			id := "container" // a session of this conversation that another door made
			if version == "2026-07-28" {
				id = a.does("create_session", object{})["session_id"].(string)
			} else if _, err := sdk.New(url, sdk.WithToken("s3cret")).Create(t.Context(), sdk.CreateOptions{
				ID: id, Isolation: id, Runtime: "python", Thread: "me",
			}); err != nil {
				t.Fatal(err)
			}
			a.interpreter(id)
			if out := a.does("stop_session", object{"session_id": id}); out["success"] != true {
				t.Errorf("stop_session = %v", out)
			}
		})
	}
	t.Run("caps", func(t *testing.T) {
		one, two := overHTTP(t, url, "", "one"), overHTTP(t, url, "", "two")
		for range 3 {
			one.does("create_session", object{})
		}
		if out, _ := one.call("create_session", object{}); !strings.Contains(out["error"].(string), "Maximum sessions per conversation (3) reached") {
			t.Errorf("the fourth of a conversation: %v", out)
		}
		two.does("create_session", object{})
		two.does("create_session", object{})
		if out, _ := two.call("create_session", object{}); !strings.Contains(out["error"].(string), "Maximum number of sessions (5) reached") {
			t.Errorf("the sixth of all: %v", out)
		}
	})
	if err := h.stop(); err != nil {
		t.Error(err)
	}
}
