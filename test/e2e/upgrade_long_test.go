//go:build root && long

package e2e_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	sdk "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/test/harness"
)

// TestUpgradeWhileASandboxSleeps puts a sandbox to sleep with one program, and goes
// on with another that carries another runtime and another agent. A run keeps the
// programs that it began with through every sleep; a stop and a start give it those
// of today.
func TestUpgradeWhileASandboxSleeps(t *testing.T) {
	t.Parallel()
	u := &upgrade{realHost: newReal(t, harness.Options{Program: otherProgram(t)}), t: t, runs: make(map[string]string)}
	u.serve("--pool", "off")
	u.create("a")
	if _, err := u.c.Exec(t.Context(), "a", sdk.ExecOptions{Shell: "echo root >/etc/kept; echo workspace >/workspace/kept", User: "root"}); err != nil {
		t.Fatal(err)
	}
	counter, err := u.c.StartExec(t.Context(), "a", sdk.ExecOptions{Shell: "n=0; while :; do n=$((n+1)); echo $n; sleep 0.1; done", Timeout: sdk.NoTimeout})
	if err != nil {
		t.Fatal(err)
	}
	counts := counting{c: u.c, id: "a", seq: counter.Seq}
	counts.goOn(t, 0)
	if _, err := u.c.CreateSnapshot(t.Context(), "a", sdk.SnapshotOptions{Name: "before", Memory: true}); err != nil {
		t.Fatal(err)
	}
	u.note("a")
	before := u.programs("a")
	u.sleep("a")
	if err := u.stop(); err != nil {
		t.Fatal(err)
	}

	u.Program = harness.Program(t)
	u.serve()
	counts.c = u.c
	u.create("b")
	today := u.programs("b")
	if today.runtime == before.runtime || today.agent == before.agent {
		t.Fatalf("both daemons run sandboxes with %+v", today)
	}

	for _, when := range []string{"after the upgrade", "after a sleep and a restart"} {
		if got := u.keptRuntime("a"); got != before.runtime {
			t.Errorf("%s: the program with its memory is %s, want %s", when, got, before.runtime)
		}
		n := counts.read(t)
		u.shows("a", "root\nworkspace\n") // which wakes it
		counts.goOn(t, n)
		if got := u.programs("a"); got != before {
			t.Errorf("%s: it runs with %+v, want those that it began with, %+v", when, got, before)
		}
		u.whole("a")
		u.sleep("a")
		u.restart()
		counts.c = u.c
	}

	if _, err := u.c.Create(t.Context(), sdk.CreateOptions{ID: "restored", Snapshot: "before"}); err != nil {
		t.Fatal(err)
	}
	u.note("restored")
	u.shows("restored", "root\nworkspace\n")
	if got := u.programs("restored"); got != before {
		t.Errorf("out of a snapshot of before it runs with %+v, want %+v", got, before)
	}

	// Its memory is given up: nothing needs the earlier programs for it any more.
	for _, id := range []string{"a", "restored"} {
		if _, err := u.c.Stop(t.Context(), id, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := u.c.Start(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		u.shows(id, "root\nworkspace\n")
		if got := u.programs(id); got != today {
			t.Errorf("%s: after a stop and a start it runs with %+v, want those of today, %+v", id, got, today)
		}
	}
	u.restart()
	u.carries(before, true) // the snapshot needs them
	if err := u.c.RemoveSnapshot(t.Context(), "before"); err != nil {
		t.Fatal(err)
	}
	u.restart()
	u.carries(before, false)

	// What is kept of it from now on is of the programs of today.
	forked, err := u.c.Fork(t.Context(), "a", 1, "fork")
	if err != nil {
		t.Fatal(err)
	}
	u.note("fork")
	u.sleep("a")
	u.restart()
	for _, id := range []string{"a", forked.Sandboxes[0].ID} {
		u.shows(id, "root\nworkspace\n")
		u.whole(id)
		if got := u.programs(id); got != today {
			t.Errorf("%s runs with %+v, want %+v", id, got, today)
		}
	}
	if err := u.stop(); err != nil {
		t.Error(err)
	}
}

// upgrade is a data directory whose program changes.
type upgrade struct {
	realHost
	t    *testing.T
	c    *sdk.Client
	runs map[string]string // the driver's directory of each sandbox
}

func (u *upgrade) serve(flags ...string) {
	u.t.Helper()
	url, err := u.start(flags)
	if err != nil {
		u.t.Fatal(err)
	}
	u.c = clientOf(url)
}

func (u *upgrade) restart() {
	u.t.Helper()
	if err := u.stop(); err != nil {
		u.t.Fatal(err)
	}
	u.serve()
}

func (u *upgrade) create(id string) {
	u.t.Helper()
	if _, err := u.c.Create(u.t.Context(), sdk.CreateOptions{ID: id, Isolation: sdk.GVisor}); err != nil {
		u.t.Fatal(err)
	}
	u.note(id)
}

// note finds the directory of the sandbox that was made last.
func (u *upgrade) note(id string) {
	u.t.Helper()
	found, err := filepath.Glob(filepath.Join(u.Dir, "run/oci/*/note.json"))
	if err != nil {
		u.t.Fatal(err)
	}
	for _, note := range found {
		dir := filepath.Dir(note)
		known := false
		for of, d := range u.runs {
			known = known || d == dir && of != id
		}
		if !known {
			u.runs[id] = dir
		}
	}
	if u.runs[id] == "" {
		u.t.Fatalf("%s has no directory", id)
	}
}

func (u *upgrade) sleep(id string) {
	u.t.Helper()
	b, err := u.c.Sleep(u.t.Context(), id, true)
	if err != nil || b.Status != sdk.Sleeping {
		u.t.Fatalf("sleep %s: %s, %v", id, b, err)
	}
}

// shows looks at its files, which wakes it.
func (u *upgrade) shows(id, want string) {
	u.t.Helper()
	if e, err := u.c.Exec(u.t.Context(), id, sdk.Shell("cat /etc/kept /workspace/kept")); err != nil || e.Stdout != want {
		u.t.Fatalf("the files of %s: %+v, %v", id, e, err)
	}
}

// whole fails when a memory was lost.
func (u *upgrade) whole(id string) {
	u.t.Helper()
	if b, err := u.c.Get(u.t.Context(), id); err != nil || b.RestoreIncomplete || b.Status != sdk.Running {
		u.t.Errorf("%s (incomplete: %v), %v", b, b.RestoreIncomplete, err)
	}
}

// ranBy are the digests of the programs of a run.
type ranBy struct{ runtime, agent string }

func (u *upgrade) programs(id string) ranBy {
	u.t.Helper()
	pid := victim{record: filepath.Join(u.runs[id], "run.json")}.pid(u.t)
	e, err := u.c.Exec(u.t.Context(), id, sdk.ExecOptions{Shell: "sha256sum </sbin/cubby-init", User: "root"})
	agent, _, _ := strings.Cut(e.Stdout, " ")
	if err != nil || len(agent) != 64 {
		u.t.Fatalf("the agent of %s: %+v, %v", id, e, err)
	}
	return ranBy{runtime: digestOf(u.t, fmt.Sprintf("/proc/%d/exe", pid)), agent: agent}
}

func (u *upgrade) keptRuntime(id string) string {
	u.t.Helper()
	return digestOf(u.t, filepath.Join(u.runs[id], "memory/runsc"))
}

// carries says whether programs are still there.
func (u *upgrade) carries(p ranBy, want bool) {
	u.t.Helper()
	for _, digest := range []string{p.runtime, p.agent} {
		if _, err := os.Stat(filepath.Join(u.Dir, "runtimes", digest)); (err == nil) != want {
			u.t.Errorf("program %s: %v; want it there: %v", digest, err, want)
		}
	}
}

func digestOf(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// counting is a command that prints the numbers from 1.
type counting struct {
	c   *sdk.Client
	id  string
	seq int64
}

func (c counting) read(t *testing.T) int {
	t.Helper()
	e, err := c.c.Process(c.id, c.seq).Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(e.Stdout) {
		if n++; line != fmt.Sprintln(n) {
			t.Fatalf("line %d of the counter is %q", n, line)
		}
	}
	return n
}

func (c counting) goOn(t *testing.T, from int) {
	t.Helper()
	eventually(t, time.Minute, "the counter goes on", func() bool { return c.read(t) > from })
}

// otherProgram builds the program of this checkout with other digests of what it
// carries: programs do what they do with a byte more at their end too.
func otherProgram(t *testing.T) string {
	t.Helper()
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := harness.TempDir(t)
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		t.Fatal(err)
	}
	var overlay struct{ Replace map[string]string }
	overlay.Replace = make(map[string]string)
	for _, name := range []string{"cubby-init", "runsc"} {
		program := slices.Concat(carried(t, repository, name), []byte{0})
		sum := sha256.Sum256(program)
		for suffix, data := range map[string][]byte{".zst": encoder.EncodeAll(program, nil), ".sha256": []byte(hex.EncodeToString(sum[:]) + "\n")} {
			path := filepath.Join(dir, name+suffix)
			if err := os.WriteFile(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
			overlay.Replace[filepath.Join(repository, "internal/embedded/bin", name+suffix)] = path
		}
	}
	data, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "cubby")
	cmd := exec.CommandContext(t.Context(), "scripts/go", "build", "-trimpath", "-ldflags=-s -w", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "./cmd/cubby")
	cmd.Dir, cmd.Env = repository, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return program
}

// carried is a program that this checkout carries.
func carried(t *testing.T, repository, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(repository, "internal/embedded/bin", name+".zst"))
	if err != nil {
		t.Fatal(err)
	}
	decoder, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	if data, err = decoder.DecodeAll(data, nil); err != nil {
		t.Fatal(err)
	}
	return data
}
