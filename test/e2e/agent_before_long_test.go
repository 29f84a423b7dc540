//go:build root && long

package e2e_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/test/harness"
)

// protocolBefore is the last commit whose agents speak the version of the
// protocol before this one.
const protocolBefore = "88901e26280363633ca95c86c8d73c1670f88100"

// TestAgentOfTheVersionBefore starts sandboxes with the program of another
// commit, and drives them with this one.
func TestAgentOfTheVersionBefore(t *testing.T) {
	before := buildCommit(t, protocolBefore)
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			h := newReal(t, harness.Options{Program: before})
			url, err := h.start(nil)
			if err != nil {
				t.Fatal(err)
			}
			c := clientOf(url)
			if _, err := c.Create(t.Context(), sdk.CreateOptions{ID: "a", Isolation: isolation}); err != nil {
				t.Fatal(err)
			}
			runCells(t, c, "a", "python", []cell{{code: "kept = 41"}})
			lasting, err := c.StartExec(t.Context(), "a", sdk.Shell("echo before; while [ ! -e /workspace/go ]; do sleep 0.1; done; echo after; exit 3"))
			if err != nil {
				t.Fatal(err)
			}
			if err := h.kill(); err != nil {
				t.Fatal(err)
			}

			h.Program = harness.Program(t)
			if url, err = h.start(nil); err != nil {
				t.Fatal(err)
			}
			c = clientOf(url)
			if _, err := c.Files("a").Write(t.Context(), "/workspace/go", strings.NewReader("x"), sdk.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			ended, err := c.Process("a", lasting.Seq).Wait(t.Context())
			if err != nil || ended.Stdout != "before\nafter\n" || ended.ExitCode == nil || *ended.ExitCode != 3 {
				t.Errorf("the command that went on: %+v, %v", ended, err)
			}
			if e := sh(t, c, "cat /workspace/go"); e.Stdout != "x" {
				t.Errorf("a command: %+v", e)
			}
			runCells(t, c, "a", "python", []cell{{code: "kept + 1", result: "42"}})
			e, err := c.Exec(t.Context(), "a", sdk.ExecOptions{Shell: "sleep 60", Timeout: time.Second})
			if err != nil || e.Reason != "timeout" {
				t.Errorf("a time limit: %+v, %v", e, err)
			}
			if _, err := c.Stop(t.Context(), "a", 0); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Start(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			if e := sh(t, c, "cat /workspace/go"); e.Stdout != "x" {
				t.Errorf("a command after a stop and a start: %+v", e)
			}
			if err := h.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// beforeKernels is a commit whose agents know neither kernels nor what came after them,
// and announce nothing, and whose gVisor cannot keep a memory.
const beforeKernels = "b67965b0ab81c62035309ce7b026f7f2c4012026"

// TestOlderProgramsGiveNoFalseSuccess: what the programs of a running sandbox are too old
// for is refused, and nothing of it happens; they keep running what they can; and a stop
// and a start make all of it work.
func TestOlderProgramsGiveNoFalseSuccess(t *testing.T) {
	before := buildCommit(t, beforeKernels)
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			h := newReal(t, harness.Options{Program: before})
			url, err := h.start(nil)
			if err != nil {
				t.Fatal(err)
			}
			c := clientOf(url)
			if _, err := c.Create(t.Context(), sdk.CreateOptions{ID: "a", Isolation: isolation}); err != nil {
				t.Fatal(err)
			}
			if err := h.kill(); err != nil {
				t.Fatal(err)
			}
			h.Program = harness.Program(t)
			if url, err = h.start(nil); err != nil {
				t.Fatal(err)
			}
			c = clientOf(url)
			acts := map[string]func() error{
				"cell": func() error {
					_, err := c.RunCode(t.Context(), "a", sdk.CodeRequest{Code: "print(1)", Language: "python"})
					return err
				},
				"kernels": func() error { _, _, err := c.Kernels(t.Context(), "a"); return err },
				"ports":   func() error { _, err := c.Ports(t.Context(), "a"); return err },
			}
			if isolation == "gvisor" {
				acts["fork"] = func() error { _, err := c.Fork(t.Context(), "a", 1); return err }
				acts["snapshot"] = func() error {
					_, err := c.CreateSnapshot(t.Context(), "a", sdk.SnapshotOptions{Name: "kept", Memory: true})
					return err
				}
				acts["sleep"] = func() error {
					if _, err := c.Sleep(t.Context(), "a", true); err != nil {
						return err
					}
					_, err := c.Wake(t.Context(), "a")
					return err
				}
			}
			lasting, err := c.StartExec(t.Context(), "a", sdk.Shell("while [ ! -e /workspace/go ]; do sleep 0.1; done; echo after"))
			if err != nil {
				t.Fatal(err)
			}
			for name, act := range acts {
				if err := act(); !errors.Is(err, sdk.Unsupported) || !strings.Contains(err.Error(), "older version") {
					t.Errorf("%s = %v, want unsupported", name, err)
				}
			}
			if _, err := c.Files("a").Write(t.Context(), "/workspace/go", strings.NewReader("x"), sdk.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			if ended, err := c.Process("a", lasting.Seq).Wait(t.Context()); err != nil || ended.Stdout != "after\n" {
				t.Errorf("the command that went on: %+v, %v", ended, err)
			}
			if _, err := c.Stop(t.Context(), "a", 0); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Start(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			for name, act := range acts {
				if err := act(); err != nil {
					t.Errorf("%s after a stop and a start = %v", name, err)
				}
			}
			if err := h.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// buildCommit builds the program of a commit of this repository, with what it
// carries, and returns its path.
func buildCommit(t *testing.T, commit string) string {
	t.Helper()
	dir := harness.TempDir(t)
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	run := func(in, line string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", line)
		cmd.Dir, cmd.Env = in, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	run(repository, "git archive "+commit+" | tar -x -C "+dir)
	run(dir, `
		mkdir -p programs internal/embedded/bin
		for p in cubby-init runsc; do scripts/go build -ldflags '-s -w' -o programs/$p ./cmd/$p; done
		scripts/go run ./internal/embedded/pack -out internal/embedded/bin programs/cubby-init programs/runsc
		scripts/go build -ldflags '-s -w' -o cubby ./cmd/cubby`)
	return filepath.Join(dir, "cubby")
}
