//go:build root

package core_test

import (
	"crypto/rand"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/cell"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/driver/oci"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// realWorld is a world with gVisor and the image base below it. Its sandboxes are
// destroyed at the end.
func realWorld(t *testing.T, edit ...func(*core.Config)) (w *world, state string) {
	t.Helper()
	images, err := image.Open(os.Getenv("CUBBY_TEST_IMAGE_DIR"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("%v: run make test, or build the image base and name its directory by CUBBY_TEST_IMAGE_DIR", err)
	}
	images.LooksCount(time.Hour) // the image is as whole as for the test before
	dir := t.TempDir()
	state = filepath.Join(dir, "run")
	d, err := oci.New(oci.Config{
		StateDir: state, RuntimesDir: filepath.Join(dir, "runtimes"), DiskReserve: 1,
		CgroupParent: "cubby-test-" + strings.ToLower(rand.Text()[:8]), Log: slog.New(slog.NewTextHandler(testWriter{t}, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	w = newWorld(t, append([]func(*core.Config){func(c *core.Config) { c.Driver, c.Images = d, images }}, edit...)...)
	stop := w.stop
	w.stop = func() {
		if _, _, err := w.Sandboxes().DestroyAll(w.ctx); err != nil {
			t.Error(err)
		}
		stop()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	return w, state
}

// What runs in gVisor goes on after a sleep through core as if nothing had been:
// kernels, session shells, terminals, servers, commands and queues.
func TestSleepInGVisor(t *testing.T) {
	w, _ := realWorld(t)
	w.create("a")
	if e := w.python("a", "x = 20; import os, time"); !e.Success {
		t.Fatalf("the first cell: %+v", e.Error)
	}
	w.in("a", "cd /tmp; v=3; f() { echo f $1; }")
	server := w.sh("a", "mkdir -p /tmp/www; echo served > /tmp/www/file; cd /tmp/www; python3 -m http.server --bind 127.0.0.1 8123 >/dev/null 2>&1 & "+
		"until curl -sf --noproxy '*' http://127.0.0.1:8123/file; do sleep 0.1; done")
	if string(server.Stdout) != "served\n" {
		t.Fatalf("the server: %q, %q", server.Stdout, server.Stderr)
	}
	l := w.look("a", live.TerminalSpec{Shell: "echo hello; read x; echo got-$x; read y"})
	l.wait("hello")
	limit := time.Minute
	counting := w.launch("a", "echo ready; for i in $(seq 1 50); do echo $i; sleep 0.1; done")
	waiting := w.startCode("a", cell.Request{Code: "time.sleep(3); x += 1; print('slept', flush=True); x", Timeout: &limit})
	after := w.startCode("a", cell.Request{Code: "x * 2"})

	for range 2 {
		w.sleep("a", true)
		if st, err := w.Sandboxes().Stats(w.ctx, "a"); err != nil || st.MemoryOnDisk == 0 || st.MemoryBytes != 0 {
			t.Errorf("Stats = %+v, %v", st, err)
		}
		if _, err := w.Sandboxes().Wake(w.ctx, "a"); err != nil {
			t.Fatal(err)
		}
	}
	w.wait("a", counting.Seq)
	r, err := w.Execs().Result(w.ctx, "a", counting.Seq, live.OutputCaps{Stdout: -1})
	if want := "ready\n" + w.seq(50); err != nil || string(r.Stdout) != want {
		t.Errorf("the command printed %q, %v", r.Stdout, err)
	}
	w.wait("a", waiting.Seq)
	if e, err := w.Code().Execution(w.ctx, "a", waiting.Seq); err != nil || e.Stdout != "slept\n" || plainResult(e) != "21" {
		t.Errorf("the cell that ran: %+v, %+v, %v", e, e.Error, err)
	}
	w.wait("a", after.Seq)
	if e, err := w.Code().Execution(w.ctx, "a", after.Seq); err != nil || plainResult(e) != "42" {
		t.Errorf("the cell that waited: %+v, %+v, %v", e, e.Error, err)
	}
	l.typed("x\r")
	l.wait("got-x")
	l.leave()

	w.sleep("a", false)
	// Each of these is a use of its own.
	if e := w.python("a", "x + 1"); plainResult(e) != "22" || e.KernelRestarted != "" {
		t.Errorf("the kernel has %q, %+v", plainResult(e), e.Error)
	}
	w.sleep("a", false)
	if r := w.in("a", "echo $PWD $v; f 4"); string(r.Stdout) != "/tmp 3\nf 4\n" {
		t.Errorf("the session: %q, %q", r.Stdout, r.Stderr)
	}
	w.sleep("a", false)
	if r := w.sh("a", "curl -sf --noproxy '*' http://127.0.0.1:8123/file"); string(r.Stdout) != "served\n" {
		t.Errorf("the server after the sleep: %q, %q", r.Stdout, r.Stderr)
	}
	before := time.Now().Unix()
	r = w.sh("a", "date +%s")
	if at, err := strconv.ParseInt(strings.TrimSpace(string(r.Stdout)), 10, 64); err != nil || at < before || at > time.Now().Unix() {
		t.Errorf("the clock says %q, %v, at %d", r.Stdout, err, before)
	}
}

// A memory that is damaged leads to a start from the files, which says so.
func TestDamagedMemoryInGVisor(t *testing.T) {
	w, state := realWorld(t)
	w.create("a")
	w.sh("a", "echo kept > file; echo kept > ~/file")
	x := w.launch("a", "echo ready; sleep 1000")
	w.sleep("a", true)
	damaged := 0
	err := filepath.WalkDir(state, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "checkpoint.img" {
			damaged++
			err = os.Truncate(path, 100)
		}
		return err
	})
	if err != nil || damaged != 1 {
		t.Fatalf("%d memories are damaged, %v", damaged, err)
	}
	if r := w.sh("a", "cat file ~/file"); string(r.Stdout) != "kept\nkept\n" {
		t.Errorf("the files have %q, %q", r.Stdout, r.Stderr)
	}
	if b := w.get("a"); b.State != sandbox.Running || b.Cause != sandbox.CauseMemoryLost {
		t.Errorf("it is %s, %s", b.State, b.Cause)
	}
	if x := w.wait("a", x.Seq); x.Exit.Reason != sandbox.EndLost {
		t.Errorf("the command ended %+v", x.Exit)
	}
	if p, ok := w.payload("a", event.SandboxWoken).(event.Woken); !ok || !p.RestoreIncomplete {
		t.Errorf("the event says %+v", p)
	}
}
