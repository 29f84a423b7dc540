//go:build root

package core_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/core/cell"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/snapshot"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// A fork of a sandbox with a Python kernel has its variables, and from then on
// nothing in common with it: files, variables, random numbers, names, commands.
func TestForkInGVisor(t *testing.T) {
	w, _ := realWorld(t)
	w.create("a")
	if e := w.python("a", "import os, random; random.seed(1); xs = [1, 2]; open('f', 'w').write('same')"); !e.Success {
		t.Fatalf("the first cell: %+v", e.Error)
	}
	counting := w.launch("a", "echo ready; for i in $(seq 1 30); do echo $i; sleep 0.1; done")
	got, err := w.Snapshots().Fork(w.ctx, "a", 3, []string{"one", "two", "three"})
	if err != nil || len(got.Sandboxes) != 3 || got.Paused <= 0 {
		t.Fatalf("Fork = %+v, %v", got, err)
	}
	t.Logf("the parent stood still for %s; warnings: %q", got.Paused, got.Warnings)
	drawn := map[string]string{}
	for _, id := range []string{"a", "one", "two", "three"} {
		e := w.python(id, fmt.Sprintf("xs.append(%q); print(xs, open('f').read()); open('f', 'w').write(%q); random.random(), os.urandom(8)", id, id))
		if want := fmt.Sprintf("[1, 2, '%s'] same\n", id); e.Stdout != want || e.KernelRestarted != "" {
			t.Errorf("the kernel of %s says %q, error %+v, want %q", id, e.Stdout, e.Error, want)
		}
		if other := drawn[plainResult(e)]; other != "" || plainResult(e) == "" {
			t.Errorf("%s and %s draw the same random numbers: %s", id, other, plainResult(e))
		}
		drawn[plainResult(e)] = id
		if r := w.sh(id, "hostname; cat f"); string(r.Stdout) != id+"\n"+id {
			t.Errorf("in %s there is %q", id, r.Stdout)
		}
		if id != "a" {
			if x, err := w.Execs().List(w.ctx, id, live.ExecQuery{}); err != nil || len(x) != 2 || x[0].Seq != 1 {
				t.Errorf("the commands of %s are %+v, %v, want its own two", id, x, err)
			}
		}
	}
	if x := w.wait("a", counting.Seq); x.Status != sandbox.ExecDone || x.Exit.Code == nil || *x.Exit.Code != 0 {
		t.Errorf("the command of the parent ended %+v", x.Exit)
	}
	w.destroy("a", "one")
	if e := w.python("two", "xs"); plainResult(e) != "[1, 2, 'two']" {
		t.Errorf("after the end of its parent a fork says %q, %+v", plainResult(e), e.Error)
	}
}

// A snapshot outlives its sandbox, also a restart of the daemon's core, and a
// sandbox that begins from it has its files and variables.
func TestSnapshotInGVisor(t *testing.T) {
	w, _ := realWorld(t)
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a", Spec: sandbox.Spec{Env: map[string]string{"WHOSE": "a"}}}); err != nil {
		t.Fatal(err)
	}
	if e := w.python("a", "x = 41; open('f', 'w').write('kept')"); !e.Success {
		t.Fatalf("the first cell: %+v", e.Error)
	}
	w.in("a", "cd /tmp; v=3")
	n := w.keep("a", "point")
	t.Logf("%d bytes of files, %d of memory", n.DiskBytes, n.MemoryBytes)
	if _, _, err := w.Snapshots().Create(w.ctx, snapshot.Request{Source: "a", Name: "stopped"}); err == nil {
		t.Error("the files of a plain directory in use were kept") // its writers cannot be held
	}
	w.destroy("a")
	for _, id := range []string{"b", "c"} {
		if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: id, Snapshot: "point", Spec: sandbox.Spec{Env: map[string]string{"WHOSE": id}}}); err != nil {
			t.Fatal(err)
		}
		e := w.python(id, "import os; x += 1; print(open('f').read(), os.environ['WHOSE']); x")
		if e.Stdout != "kept "+id+"\n" || plainResult(e) != "42" {
			t.Errorf("the kernel of %s says %q and %q, error %+v", id, e.Stdout, plainResult(e), e.Error)
		}
		if r := w.in(id, "echo $PWD $v"); string(r.Stdout) != "/tmp 3\n" {
			t.Errorf("the session of %s says %q, %q", id, r.Stdout, r.Stderr)
		}
	}
	if err := w.Snapshots().Remove(w.ctx, "point"); err != nil {
		t.Fatal(err)
	}
	if e := w.python("c", "x"); plainResult(e) != "42" {
		t.Errorf("after the end of the snapshot: %q, %+v", plainResult(e), e.Error)
	}
}

// A rollback brings files and variables back, any number of times, and ends what
// runs.
func TestRollbackInGVisor(t *testing.T) {
	w, _ := realWorld(t)
	w.create("a")
	if e := w.python("a", "x = 1; open('f', 'w').write('then')"); !e.Success {
		t.Fatalf("the first cell: %+v", e.Error)
	}
	w.keep("a", "point")
	for i := range 3 {
		if e := w.python("a", "x += 1; open('f', 'w').write('now'); open('later', 'w').close(); x"); plainResult(e) != "2" {
			t.Fatalf("round %d: %q, %+v", i, plainResult(e), e.Error)
		}
		cell := w.startCode("a", cell.Request{Code: "import time; time.sleep(1000)"})
		b, err := w.Snapshots().Rollback(w.ctx, "a", "point")
		if err != nil || b.State != sandbox.Running {
			t.Fatalf("Rollback = %s, %v", b.State, err)
		}
		if x := w.wait("a", cell.Seq); !strings.Contains(x.Exit.Message, "rolled back") {
			t.Errorf("the cell that ran ended %+v", x.Exit)
		}
		e := w.python("a", "import os; print(open('f').read(), os.path.exists('later')); x")
		if e.Stdout != "then False\n" || plainResult(e) != "1" || e.KernelRestarted != "" {
			t.Errorf("round %d: the kernel says %q and %q, error %+v", i, e.Stdout, plainResult(e), e.Error)
		}
	}
	if r := w.sh("a", "hostname"); string(r.Stdout) != "a\n" {
		t.Errorf("it is called %q", r.Stdout)
	}
}
