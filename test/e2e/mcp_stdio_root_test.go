//go:build root

package e2e_test

import (
	"context"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/test/harness"
)

// stdio is a way to run `cubby mcp` with a daemon of its own, at an address
// and in a directory that nobody else uses.
type stdio struct {
	program string
	env     []string
	data    string
	imports string // the directory whose files import_files may read
}

func ownStdio(t *testing.T) stdio {
	t.Helper()
	program := harness.Program(t)
	images := harness.Images(t)
	address, err := harness.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	data := harness.TempDir(t)
	t.Cleanup(func() { harness.Unmount(t, data) })
	return stdio{program, []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "CUBBY_LISTEN=" + address, harness.AnyDisk,
		"CUBBY_DATA_DIR=" + data, "CUBBY_IMAGE_DIR=" + images, "CUBBY_DISK_POOL=0", "CUBBY_LOG_LEVEL=debug",
	}, data, t.TempDir()}
}

func (s stdio) command(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(s.program, "mcp", "--import-dir", s.imports)
	cmd.Env = s.env
	var log strings.Builder
	cmd.Stderr = &log
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("standard error of cubby mcp:\n%s", log.String())
		}
	})
	return cmd
}

// TestMCPOverStdio runs the command that desktop programs run, which starts a
// daemon of its own, and twice: the second run finds the first one's
// conversation.
func TestMCPOverStdio(t *testing.T) {
	t.Parallel()
	s := ownStdio(t)
	s.env = append(s.env, "CUBBY_ON_SHUTDOWN=keep")
	cmd := s.command(t)
	a := connect(t, &mcp.CommandTransport{Command: cmd, TerminateDuration: time.Minute}, "")
	list, err := a.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, tool := range list.Tools {
		names[tool.Name] = true
	}
	for _, name := range []string{"create_session", "execute_code", "execute_terminal", "import_files", "export_files", "stop_session"} {
		if !names[name] {
			t.Errorf("there is no tool %s", name)
		}
	}
	id := a.does("create_session", object{"language": "python", "dependencies": object{}})["session_id"].(string)

	dir := s.imports
	if err := os.MkdirAll(filepath.Join(dir, "project/src"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"data.csv": "a\n1\n2\n", "project/readme": "r", "project/src/m.py": "value = 7\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := a.does("import_files", object{"session_id": id, "files": []any{
		object{"source": filepath.Join(dir, "data.csv"), "destination": "data.csv"},
		object{"source": filepath.Join(dir, "project") + "/", "destination": "project/"},
		object{"file_content": "inline", "destination": "inline.txt"},
		object{"file_content": base64.StdEncoding.EncodeToString([]byte("\x00\x01")), "encoding": "base64", "destination": "raw"},
	}})
	if out["success"] != true || len(out["files"].([]any)) != 4 {
		t.Errorf("import_files = %v", out)
	}
	got := a.runs(id, "import sys; sys.path.insert(0, 'project/src'); import m\n(open('data.csv').read(), m.value, open('inline.txt').read(), open('raw', 'rb').read())")
	if text := got["result"].(object)["text/plain"]; text != `('a\n1\n2\n', 7, 'inline', b'\x00\x01')` {
		t.Errorf("what was imported: %v", text)
	}
	a.interpreter(id)
	if err := a.Close(); err != nil {
		t.Fatalf("the command ended with %v", err)
	}

	a = connect(t, &mcp.CommandTransport{Command: s.command(t), TerminateDuration: time.Minute}, "2025-11-25")
	sessions := a.does("list_sessions", object{})["sessions"].([]any)
	if len(sessions) != 1 || sessions[0].(object)["session_id"] != id {
		t.Errorf("the sessions of the next run: %v", sessions)
	}
	a.does("stop_session", object{"session_id": id})
	if err := a.Close(); err != nil {
		t.Fatalf("the second command ended with %v", err)
	}
}

// TestMCPEndsItsDaemon: when the client goes away, nothing stays that nobody
// looks after.
func TestMCPEndsItsDaemon(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		asked  bool // by a signal; else the input ends
		during bool // a call
	}{
		{"its input ends", false, false}, {"it is asked to", true, false},
		{"its input ends in a call", false, true}, {"it is asked to in a call", true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := ownStdio(t)
			cmd := s.command(t)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			a := connect(t, &mcp.IOTransport{Reader: out, Writer: in}, "")
			id := a.does("create_session", object{})["session_id"].(string)
			called := make(chan struct{})
			go func() {
				defer close(called)
				if !tt.during {
					return
				}
				_, _ = a.CallTool(context.Background(), &mcp.CallToolParams{Name: "execute_terminal", Arguments: object{
					"session_id": id, "command": "touch begun; sleep 250", "timeout": 300,
				}})
			}()
			for tt.during {
				if _, res := a.call("read_file", object{"session_id": id, "path": "begun"}); !res.IsError {
					break
				}
				time.Sleep(50 * time.Millisecond)
			}
			if tt.asked {
				err = cmd.Process.Signal(syscall.SIGTERM)
			} else {
				err = in.Close()
			}
			if err != nil {
				t.Error(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case err := <-ended:
				if tt.asked == (err == nil) {
					t.Errorf("it ended with %v", err)
				}
			case <-time.After(2 * time.Minute):
				t.Error("it did not end within two minutes")
				_ = cmd.Process.Kill()
				<-ended
			}
			<-called
			if left := processesOf(t, s.data); len(left) > 0 {
				t.Errorf("still there: %q", left)
			}
		})
	}
}

// processesOf lists the command lines that name a directory.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, name := range found {
		if b, err := os.ReadFile(name); err == nil && strings.Contains(string(b), dir) {
			lines = append(lines, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return lines
}

// TestMCPWithoutADaemon: who may not start one is told what to do, and not on
// standard output, where only the protocol is.
func TestMCPWithoutADaemon(t *testing.T) {
	s := ownStdio(t)
	program := filepath.Join("/var/tmp", filepath.Base(s.data)+"-program") // where anybody can run it
	// Not written by this process: what is open for writing cannot be run.
	if out, err := exec.Command("install", "-m", "0755", s.program, program).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	defer os.Remove(program)
	for _, env := range [][]string{s.env, append([]string{"CUBBY_URL=http://127.0.0.1:1"}, s.env...)} {
		cmd := exec.Command(program, "mcp")
		cmd.Env, cmd.Dir = env, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n")
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err == nil {
			t.Error("it ended well")
		}
		if stdout.Len() > 0 || !strings.Contains(stderr.String(), "sudo cubby serve") || !strings.Contains(stderr.String(), "CUBBY_URL") {
			t.Errorf("it said %q, and %q", stdout.String(), stderr.String())
		}
	}
}
