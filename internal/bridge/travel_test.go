package bridge_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/internal/bridge"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// versions are one of each kind of the protocol.
var versions = []string{"2026-07-28", "2025-11-25"}

// appears waits until a file of a session is there.
func (b bridged) appears(t *testing.T, id, name string) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, failed := b.call(t, "read_file", object{"session_id": id, "path": name}); !failed {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s never came", name)
		}
	}
}

func TestProgressGoesThrough(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			heard := make(chan *sdk.ProgressNotificationParams, 100)
			b := start(t, at(d.URL), version, sdk.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, n *sdk.ProgressNotificationClientRequest) { heard <- n.Params },
			})
			id := b.good(t, "create_session", object{})["session_id"].(string)
			params := &sdk.CallToolParams{Name: "execute_terminal", Arguments: object{
				"session_id": id, "command": "echo a line; while [ ! -e go ]; do sleep 0.05; done", "timeout": 300,
			}}
			params.SetProgressToken("mine")
			done := make(chan error, 1)
			go func() {
				_, err := b.CallTool(context.Background(), params)
				done <- err
			}()
			late := time.After(2 * time.Minute)
			for came := false; !came; {
				select {
				case n := <-heard:
					if n.ProgressToken != "mine" {
						t.Errorf("progress of %v", n.ProgressToken)
					}
					came = n.Message == "a line"
				case err := <-done:
					t.Fatalf("the call ended before its progress came: %v", err)
				case <-late:
					t.Fatal("no progress came")
				}
			}
			b.good(t, "write_file", object{"session_id": id, "path": "go", "content": ""})
			if err := <-done; err != nil {
				t.Error(err)
			}
			b.good(t, "stop_session", object{"session_id": id})
		})
	}
}

func TestCancellationGoesThrough(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			b := start(t, at(d.URL), version, sdk.ClientOptions{})
			id := b.good(t, "create_session", object{})["session_id"].(string)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := b.CallTool(ctx, &sdk.CallToolParams{Name: "execute_terminal", Arguments: object{
					"session_id": id, "command": "touch begun; sleep 600", "timeout": 300,
				}})
				done <- err
			}()
			b.appears(t, id, "begun")
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("the call = %v", err)
			}
			b.killed(t, id)
			b.good(t, "stop_session", object{"session_id": id})
		})
	}
}

// killed waits until the first command of a session was killed.
func (b bridged) killed(t *testing.T, id string) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		out := b.good(t, "get_output", object{"session_id": id, "command_id": 1})
		if out["reason"] == "killed" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it was never killed: %v", out)
		}
	}
}

// TestInputEnds: what runs for a client that hangs up is ended.
func TestInputEnds(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	b := start(t, at(d.URL), "", sdk.ClientOptions{})
	id := b.good(t, "create_session", object{})["session_id"].(string)
	called := make(chan struct{})
	go func() {
		defer close(called)
		_, _ = b.CallTool(context.Background(), &sdk.CallToolParams{Name: "execute_terminal", Arguments: object{
			"session_id": id, "command": "touch begun; sleep 600", "timeout": 300,
		}})
	}()
	b.appears(t, id, "begun")
	if err := b.hangUp(); err != nil {
		t.Errorf("the bridge ended with %v", err)
	}
	<-called
	start(t, at(d.URL), "", sdk.ClientOptions{}).killed(t, id)
}

// TestDaemonRestarts: the next call finds the next daemon.
func TestDaemonRestarts(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	var url atomic.Value
	url.Store(d.URL)
	b := start(t, func(context.Context) (string, error) { return url.Load().(string), nil }, "", sdk.ClientOptions{})
	id := b.good(t, "create_session", object{})["session_id"].(string)
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	out, failed := b.call(t, "execute_terminal", object{"session_id": id, "command": "true"})
	if message, _ := out["error"].(string); !failed || !strings.HasPrefix(message, "ConnectionError: the cubby daemon cannot be reached") {
		t.Errorf("without a daemon: %v", out)
	}
	again := daemontest.Start(t, daemontest.Options{Dir: d.Dir, Driver: d.Driver.Restart(t)})
	url.Store(again.URL)
	if out := b.good(t, "execute_terminal", object{"session_id": id, "command": "echo again"}); out["stdout"] != "again\n" {
		t.Errorf("at the next daemon: %v", out)
	}
}

func TestHostFiles(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	dir := t.TempDir()
	b := startWith(t, bridge.Config{Daemon: at(d.URL), ImportDirs: []string{dir}}, "", sdk.ClientOptions{}, nil)
	id := b.good(t, "create_session", object{})["session_id"].(string)
	for name, text := range map[string]string{"one": "1", "tree/two": "2", "tree/deep/three": "3"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := b.good(t, "import_files", object{"session_id": id, "files": []any{
		object{"source": filepath.Join(dir, "one")}, object{"source": filepath.Join(dir, "tree"), "destination": "copy"},
		object{"file_content": "inline", "destination": "four"}, object{"source": filepath.Join(dir, "none")},
	}})
	files := out["files"].([]any)
	if out["success"] != false || len(files) != 4 {
		t.Fatalf("import_files = %v", out)
	}
	for i, want := range []bool{true, true, true, false} {
		if files[i].(object)["success"] != want {
			t.Errorf("entry %d = %v", i, files[i])
		}
	}
	if message, _ := files[3].(object)["error"].(string); !strings.Contains(message, "no such file") {
		t.Errorf("what is missing: %v", files[3])
	}
	for name, want := range map[string]string{"one": "1", "copy/two": "2", "copy/deep/three": "3", "four": "inline"} {
		if out := b.good(t, "read_file", object{"session_id": id, "path": name}); out["content"] != want {
			t.Errorf("%s = %v", name, out)
		}
	}
	if out, failed := b.call(t, "import_files", object{"session_id": id, "files": "x"}); !failed || out["error"] != "INVALID_INPUT" {
		t.Errorf("no list: %v", out)
	}
	if out, failed := b.call(t, "import_files", object{"session_id": "none", "files": []any{object{"source": filepath.Join(dir, "one")}}}); !failed ||
		out["error"] != "ValueError: Session 'none' not found" {
		t.Errorf("no session: %v", out)
	}
}

// TestErrorsOfTheClientsRevision: the bridge speaks another revision with the
// daemon than its client with it.
func TestErrorsOfTheClientsRevision(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	for version, want := range map[string]int64{"2026-07-28": -32602, "2025-11-25": -32002} {
		b := start(t, at(d.URL), version, sdk.ClientOptions{})
		for _, uri := range []string{"sandbox://none/workspace/x", "test://nothing"} {
			var wire *jsonrpc.Error
			_, err := b.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
			if !errors.As(err, &wire) || wire.Code != want {
				t.Errorf("%s: %s = %v, want %d", version, uri, err, want)
			}
		}
		var wire *jsonrpc.Error
		if _, err := b.ListPrompts(t.Context(), nil); !errors.As(err, &wire) || wire.Code != jsonrpc.CodeMethodNotFound {
			t.Errorf("%s: prompts = %v", version, err)
		}
	}
}

// TestErrorAtNormalEnd: who was asked to end by a signal logged an error.
func TestErrorAtNormalEnd(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	in, toBridge := io.Pipe()
	fromBridge, out := io.Pipe()
	defer toBridge.Close()
	var log strings.Builder
	ended := make(chan error, 1)
	go func() {
		ended <- bridge.Run(ctx, bridge.Config{Daemon: at(d.URL), Stdin: in, Stdout: out, Log: slog.New(slog.NewTextHandler(&log, nil))})
		_ = out.Close()
	}()
	s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.IOTransport{Reader: fromBridge, Writer: toBridge}, nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v", err)
	}
	_ = s.Close()
	if strings.Contains(log.String(), "ERROR") {
		t.Errorf("the log has %s", log.String())
	}
}

// TestNoDaemon: there is nothing to offer.
func TestNoDaemon(t *testing.T) {
	err := runUntilItFails(t)
	if err == nil || !strings.Contains(err.Error(), "start one") {
		t.Errorf("Run = %v", err)
	}
}

func runUntilItFails(t *testing.T) error {
	t.Helper()
	in, _ := io.Pipe()
	return bridge.Run(t.Context(), bridge.Config{
		Daemon: func(context.Context) (string, error) { return "", errors.New("start one") },
		Stdin:  in, Stdout: io.Discard, Log: slog.New(slog.DiscardHandler),
	})
}
