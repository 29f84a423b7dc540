package bridge_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/bridge"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		http.DefaultClient.CloseIdleConnections()
		os.Exit(code)
	}))
}

// bridged is a client of a bridge.
type bridged struct {
	*sdk.ClientSession
	hangUp func() error // closes the bridge's input and waits for its end
}

// start runs a bridge to url until the test ends.
func start(t *testing.T, daemon func(context.Context) (string, error), version string, o sdk.ClientOptions) bridged {
	t.Helper()
	return startWith(t, bridge.Config{Daemon: daemon}, version, o, nil)
}

// startWith runs a bridge as c says, for a client that works in roots.
func startWith(t *testing.T, c bridge.Config, version string, o sdk.ClientOptions, roots []string) bridged {
	t.Helper()
	in, toBridge := io.Pipe()
	fromBridge, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		c.Thread, c.Stdin, c.Stdout, c.Log = "test", in, out, slog.New(slog.DiscardHandler)
		ended <- bridge.Run(context.Background(), c)
		_ = out.Close()
	}()
	hangUp := sync.OnceValue(func() error {
		_ = toBridge.Close()
		return <-ended
	})
	t.Cleanup(func() {
		if err := hangUp(); err != nil {
			t.Errorf("the bridge ended with %v", err)
		}
	})
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &o)
	for _, root := range roots {
		client.AddRoots(&sdk.Root{URI: "file://" + root}) //nolint:staticcheck // deprecated and in use
	}
	s, err := client.Connect(t.Context(), &sdk.IOTransport{Reader: fromBridge, Writer: toBridge}, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	return bridged{s, hangUp}
}

func at(url string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return url, nil }
}

type object = map[string]any

func (b bridged) call(t *testing.T, tool string, args object) (object, bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	res, err := b.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	out, ok := res.StructuredContent.(map[string]any)
	if !ok {
		t.Fatalf("%s: structured content is %T", tool, res.StructuredContent)
	}
	var text object
	if err := json.Unmarshal([]byte(res.Content[0].(*sdk.TextContent).Text), &text); err != nil {
		t.Errorf("%s: the text is no JSON: %v", tool, err)
	}
	return out, res.IsError
}

func (b bridged) good(t *testing.T, tool string, args object) object {
	t.Helper()
	out, failed := b.call(t, tool, args)
	if failed {
		t.Fatalf("%s(%v) = %v", tool, args, out)
	}
	return out
}

func TestCallsGoThrough(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	for _, version := range []string{"2026-07-28", "2025-11-25", "2024-11-05"} {
		t.Run(version, func(t *testing.T) {
			b := start(t, at(d.URL), version, sdk.ClientOptions{})
			tools, err := b.ListTools(t.Context(), nil)
			if err != nil || len(tools.Tools) != 18 {
				t.Fatalf("tools = %v, %v", tools, err)
			}
			id := b.good(t, "create_session", object{})["session_id"].(string)
			out := b.good(t, "execute_terminal", object{"session_id": id, "command": "echo hello"})
			if out["stdout"] != "hello\n" || out["exit_code"] != 0.0 {
				t.Errorf("execute_terminal = %v", out)
			}
			if out, failed := b.call(t, "execute_terminal", object{"session_id": id}); !failed || out["error"] != "INVALID_INPUT" {
				t.Errorf("without a command: %v", out)
			}
			if out := b.good(t, "stop_session", object{"session_id": id}); out["success"] != true {
				t.Errorf("stop_session = %v", out)
			}
		})
	}
}

// TestSubscriptionsAndCompletion pass through.
func TestSubscriptionsAndCompletion(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			updated := make(chan string, 100)
			b := start(t, at(d.URL), version, sdk.ClientOptions{
				ResourceUpdatedHandler: func(_ context.Context, r *sdk.ResourceUpdatedNotificationRequest) { updated <- r.Params.URI },
			})
			out, _ := b.call(t, "create_session", object{})
			id := out["session_id"].(string)
			b.call(t, "start_command", object{"session_id": id, "command": "until [ -e go ]; do sleep 0.05; done; echo gone"})
			uri := "sandbox-output://" + id + "/1/stdout"
			if err := b.Subscribe(t.Context(), &sdk.SubscribeParams{URI: uri}); err != nil {
				t.Fatal(err)
			}
			b.call(t, "write_file", object{"session_id": id, "path": "go", "content": ""})
			select {
			case got := <-updated:
				if got != uri {
					t.Errorf("%s was updated, want %s", got, uri)
				}
			case <-time.After(time.Minute):
				t.Error("no update")
			}
			if err := b.Unsubscribe(t.Context(), &sdk.UnsubscribeParams{URI: uri}); err != nil {
				t.Error(err)
			}
			res, err := b.Complete(t.Context(), &sdk.CompleteParams{
				Ref:      &sdk.CompleteReference{Type: "ref/resource", URI: "sandbox://{session_id}/{+path}"},
				Argument: sdk.CompleteParamsArgument{Name: "session_id", Value: id[:2]},
			})
			if err != nil || len(res.Completion.Values) != 1 || res.Completion.Values[0] != id {
				t.Errorf("completes to %+v, %v", res, err)
			}
			b.call(t, "stop_session", object{"session_id": id})
		})
	}
}
