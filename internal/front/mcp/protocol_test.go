package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// until waits for a condition of the world outside.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("it never came: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestProgress(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	eras(t, func(t *testing.T, version string) {
		heard := make(chan *sdk.ProgressNotificationParams, 100)
		s := client{url: d.URL, version: version, options: sdk.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, n *sdk.ProgressNotificationClientRequest) { heard <- n.Params },
		}}.connect(t)
		id := begin(t, s)
		defer good(t, s, "stop_session", object{"session_id": id})
		params := &sdk.CallToolParams{Name: "execute_terminal", Arguments: object{
			"session_id": id, "command": "echo first; echo last line; while [ ! -e go ]; do sleep 0.05; done", "timeout": 300,
		}}
		params.SetProgressToken("token")
		done := make(chan error, 1)
		go func() {
			_, err := s.CallTool(t.Context(), params)
			done <- err
		}()
		before := 0.0
		for range 2 {
			n := <-heard
			if n.ProgressToken != "token" || n.Progress <= before {
				t.Errorf("progress = %+v after %v", n, before)
			}
			before = n.Progress
			if n.Message != "last line" && before > 1 {
				// The first tick may come before the output.
				t.Logf("message %q", n.Message)
			}
		}
		for n := range heard {
			if n.Message == "last line" {
				break
			}
		}
		good(t, s, "write_file", object{"session_id": id, "path": "go", "content": ""})
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestCancel: what a client gives up is ended, and the session goes on.
func TestCancel(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	eras(t, func(t *testing.T, version string) {
		s := client{url: d.URL, version: version}.connect(t)
		id := begin(t, s)
		defer good(t, s, "stop_session", object{"session_id": id})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := s.CallTool(ctx, &sdk.CallToolParams{Name: "execute_terminal", Arguments: object{
				"session_id": id, "command": "touch begun; sleep 600", "timeout": 300,
			}})
			done <- err
		}()
		exists := func(name string) bool {
			_, res := call(t, s, "read_file", object{"session_id": id, "path": name})
			return !res.IsError
		}
		until(t, "the command", func() bool { return exists("begun") })
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the call = %v, want canceled", err)
		}
		until(t, "its end", func() bool {
			return good(t, s, "get_output", object{"session_id": id, "command_id": 1})["reason"] == "killed"
		})
		if out := good(t, s, "execute_terminal", object{"session_id": id, "command": "echo alive"}); out["stdout"] != "alive\n" {
			t.Errorf("afterwards: %v", out)
		}
	})
}

// TestCancelAsTheCommandBegins: whenever a client gives up, its command does not run on.
func TestCancelAsTheCommandBegins(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	s := client{url: d.URL, version: modern}.connect(t)
	id := begin(t, s)
	defer good(t, s, "stop_session", object{"session_id": id})
	for i := range 40 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond/2)
		_, err := s.CallTool(ctx, &sdk.CallToolParams{Name: "execute_terminal", Arguments: object{"session_id": id, "command": "sleep 600", "timeout": 300}})
		cancel()
		if err == nil {
			t.Fatal("the call ended")
		}
	}
	until(t, "the end of all", func() bool {
		res, err := http.Get(d.URL + "/v1/sandboxes/" + id + "/execs?limit=100")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var list struct{ Execs []struct{ Status string } }
		if err := json.NewDecoder(res.Body).Decode(&list); err != nil {
			t.Fatal(err)
		}
		for _, x := range list.Execs {
			if x.Status != "done" && x.Status != "error" {
				return false
			}
		}
		return len(list.Execs) > 0
	})
}

// TestStop: a daemon that stops ends streams, tells those who wait, and leaves
// commands running.
func TestStop(t *testing.T) {
	eras(t, func(t *testing.T, version string) {
		d := daemontest.Start(t, daemontest.Options{Config: func(c *config.Config) { c.ShutdownTimeout = time.Minute }})
		s := client{url: d.URL, version: version}.connect(t)
		id := begin(t, s)
		type end struct {
			res *sdk.CallToolResult
			err error
		}
		done := make(chan end, 1)
		go func() {
			res, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "execute_terminal", Arguments: object{
				"session_id": id, "command": "touch begun; sleep 600", "timeout": 300,
			}})
			done <- end{res, err}
		}()
		until(t, "the command", func() bool {
			_, res := call(t, s, "read_file", object{"session_id": id, "path": "begun"})
			return !res.IsError
		})
		if err := d.Stop(); err != nil {
			t.Fatalf("Stop = %v", err)
		}
		e := <-done
		if e.err != nil {
			t.Fatalf("who waited got %v", e.err)
		}
		if out := structured(t, "execute_terminal", e.res); !e.res.IsError || !strings.Contains(out["hint"].(string), "command_id 1") {
			t.Errorf("who waited got %v", out)
		}
		again := daemontest.Start(t, daemontest.Options{Dir: d.Dir, Driver: d.Driver.Restart(t)})
		s = client{url: again.URL, version: version}.connect(t)
		until(t, "the command at the next daemon", func() bool {
			return good(t, s, "get_output", object{"session_id": id, "command_id": 1})["status"] == "running"
		})
	})
}

func TestManyClients(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	first := client{url: d.URL}.connect(t)
	id := begin(t, first)
	var clients sync.WaitGroup
	for i := range 8 {
		version := []string{modern, older}[i%2]
		s := client{url: d.URL, version: version}.connect(t)
		clients.Go(func() {
			for n := range 5 {
				want := fmt.Sprintf("%d %d\n", i, n)
				res, err := s.CallTool(context.Background(), &sdk.CallToolParams{
					Name: "execute_terminal", Arguments: object{"session_id": id, "command": fmt.Sprintf("echo %d %d", i, n), "timeout": 300},
				})
				if err != nil {
					t.Errorf("client %d: %v", i, err)
				} else if out, _ := res.StructuredContent.(map[string]any); out["stdout"] != want {
					t.Errorf("client %d got %v, want %q", i, out, want)
				}
			}
		})
	}
	clients.Wait()
}

// post sends a request as it is.
func post(t *testing.T, url, body string, header http.Header) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/mcp", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	for k, v := range header {
		r.Header[k] = v
	}
	if h := header.Get("Host"); h != "" {
		r.Host = h
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

func TestRefusals(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	for _, tt := range []struct {
		name, body string
		header     http.Header
		status     int
	}{
		{"well", initialize, nil, 200},
		{"a foreign page", initialize, http.Header{"Origin": {"http://evil.example"}}, 403},
		{"a name that was bent to this machine", initialize, http.Header{"Host": {"evil.example"}}, 403},
		{"no JSON", `{"jsonrpc":`, nil, 400},
		{"no body", ``, nil, 400},
		{"JSON of something else", `{"hello":"world"}`, nil, 400},
		{"an unknown session", initialize, http.Header{"Mcp-Session-Id": {"nothing"}}, 404},
		{"an unknown revision", initialize, http.Header{"Mcp-Protocol-Version": {"1999-01-01"}}, 400},
		{"another type", initialize, http.Header{"Content-Type": {"text/plain"}}, 415},
		{"a modern request without its headers", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, http.Header{"Mcp-Protocol-Version": {modern}}, 400},
		{"deep nesting", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + strings.Repeat("[", 100_000), nil, 400},
		{"more than a request may be", `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 64<<20) + `"}`, nil, 413},
	} {
		if status, text := post(t, d.URL, tt.body, tt.header); status != tt.status {
			t.Errorf("%s: %d %.200s, want %d", tt.name, status, text, tt.status)
		}
	}
	for _, method := range []string{http.MethodPut, http.MethodPatch} {
		r, _ := http.NewRequestWithContext(t.Context(), method, d.URL+"/mcp", nil)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") == "" {
			t.Errorf("%s = %s", method, res.Status)
		}
	}
	// It has taken no harm.
	begin(t, client{url: d.URL}.connect(t))
}

func TestTokens(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{Config: func(c *config.Config) { c.Tokens = "alice:a-secret,bob:b-secret" }})
	if _, err := (client{url: d.URL, token: "wrong"}).tryConnect(t); err == nil {
		t.Error("a wrong token is enough")
	}
	if status, _ := post(t, d.URL, initialize, nil); status != 401 {
		t.Errorf("without a token: %d", status)
	}
	eras(t, func(t *testing.T, version string) {
		alice := client{url: d.URL, version: version, token: "a-secret"}.connect(t)
		bob := client{url: d.URL, version: version, token: "b-secret"}.connect(t)
		id := begin(t, alice)
		defer good(t, alice, "stop_session", object{"session_id": id})
		// The conversation is the token's name.
		if out := bad(t, bob, "execute_terminal", object{"session_id": id, "command": "true"}); !strings.HasPrefix(out["error"].(string), "PermissionError") {
			t.Errorf("bob with alice's session: %v", out)
		}
		if version != older {
			return
		}
		// A protocol session belongs to who began it.
		status, text := post(t, d.URL, `{"jsonrpc":"2.0","id":9,"method":"tools/list"}`, http.Header{
			"Authorization": {"Bearer b-secret"}, "Mcp-Session-Id": {alice.ID()}, "Mcp-Protocol-Version": {older},
		})
		if status != 404 {
			t.Errorf("bob in alice's protocol session: %d %.100s", status, text)
		}
	})
}

// TestClientGone: a client of the stateless protocol that goes away ends what
// it waited for.
func TestClientGone(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	s := client{url: d.URL, version: modern}.connect(t)
	id := begin(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	params, err := json.Marshal(object{
		"name": "execute_terminal", "arguments": object{"session_id": id, "command": "touch begun; sleep 600", "timeout": 300},
		"_meta": object{
			"io.modelcontextprotocol/protocolVersion": modern, "io.modelcontextprotocol/clientCapabilities": object{},
			"io.modelcontextprotocol/clientInfo": object{"name": "t", "version": "1"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+string(params)+`}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {modern}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"execute_terminal"},
	}
	done := make(chan error, 1)
	go func() {
		res, err := http.DefaultClient.Do(r)
		if err == nil {
			var text []byte
			text, err = io.ReadAll(res.Body)
			res.Body.Close()
			err = fmt.Errorf("%s %.200s: %w", res.Status, text, err)
		}
		done <- err
	}()
	until(t, "the command", func() bool {
		_, res := call(t, s, "read_file", object{"session_id": id, "path": "begun"})
		return !res.IsError
	})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the request: %v", err)
	}
	until(t, "its end", func() bool {
		return good(t, s, "get_output", object{"session_id": id, "command_id": 1})["reason"] == "killed"
	})
}
