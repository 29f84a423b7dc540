package core_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
)

func TestRestartLosesNoByteAndRunsNothingTwice(t *testing.T) {
	w := newWorld(t)
	w.limits.PerExec = 16 << 20
	w.restart()
	b := w.create("a")
	go_on := filepath.Join(t.TempDir(), "go")
	x := w.launch("a", fmt.Sprintf(`echo run >> count
for i in $(seq 2000); do echo out $i; echo err $i >&2; done
while [ ! -e %s ]; do sleep 0.01; done
for i in $(seq 2001 4000); do echo out $i; done
exit 7`, go_on))
	w.restart()
	if err := os.WriteFile(go_on, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	x = w.wait("a", x.Seq)
	if x.Status != sandbox.ExecDone || *x.Exit.Code != 7 {
		t.Errorf("it ended %s %+v, want done with 7", x.Status, x.Exit)
	}
	r, err := w.Execs().Result(w.ctx, "a", x.Seq, live.OutputCaps{Stdout: -1, Stderr: -1})
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&stdout, "out %d\n", i+1)
		if i < 2000 {
			fmt.Fprintf(&stderr, "err %d\n", i+1)
		}
	}
	if string(r.Stdout) != stdout.String() || string(r.Stderr) != stderr.String() {
		t.Errorf("the output has %d and %d bytes, want %d and %d", len(r.Stdout), len(r.Stderr), stdout.Len(), stderr.Len())
	}
	if r := w.sh("a", "cat count"); string(r.Stdout) != "run\n" || r.Exec.Seq != 2 {
		t.Errorf("it ran %q times, the next exec is %d", r.Stdout, r.Exec.Seq)
	}
	got, err := w.Sandboxes().Get(w.ctx, "a")
	if err != nil || got.UID != b.UID || got.State != sandbox.Running {
		t.Errorf("the sandbox is %s, %v", got.State, err)
	}
}

func TestRestartWhileManyExecsRun(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	var seqs []int64
	for i := range 20 {
		x, err := w.Execs().Start(w.ctx, "a", sandbox.ExecSpec{Shell: fmt.Sprintf("echo %d; echo x >> runs-%d; sleep 0.%d; echo end", i, i, i%4), Env: map[string]string{"A": "b"}})
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, x.Seq)
	}
	w.restart()
	w.restart()
	for i, seq := range seqs {
		if x := w.wait("a", seq); x.Status != sandbox.ExecDone {
			t.Errorf("exec %d ended %+v", seq, x.Exit)
		}
		r, err := w.Execs().Result(w.ctx, "a", seq, live.OutputCaps{Stdout: -1})
		if want := fmt.Sprintf("%d\nend\n", i); err != nil || string(r.Stdout) != want {
			t.Errorf("exec %d wrote %q, %v, want %q", seq, r.Stdout, err, want)
		}
	}
	if r := w.sh("a", "cat runs-*"); string(r.Stdout) != strings.Repeat("x\n", 20) {
		t.Errorf("commands ran %d times, want 20", strings.Count(string(r.Stdout), "x"))
	}
}

// A daemon can die between the row of an exec and the word to the agent.
func TestExecThatTheAgentNeverHeardOfIsStarted(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	w.stop()
	w.open()
	limit := time.Minute
	seq, err := w.store.CreateExec(w.ctx, sandbox.Exec{UID: sandbox.NewUID(), Box: b.UID, Spec: sandbox.ExecSpec{
		Shell: "echo $SECRET", Env: map[string]string{"SECRET": "late"}, Cwd: sandbox.WorkspaceDir, User: sandbox.UserSandbox, Timeout: &limit,
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.driverOfNext()
	w.start()
	w.until("the exec is known", func() bool { _, err := w.Execs().Get(w.ctx, "a", seq); return err == nil && len(w.Ready(w.ctx)) == 0 })
	w.wait("a", seq)
	if r, err := w.Execs().Result(w.ctx, "a", seq, live.OutputCaps{Stdout: -1}); err != nil || string(r.Stdout) != "late\n" {
		t.Errorf("it wrote %q, %v", r.Stdout, err)
	}
}

func TestSandboxThatDiedWhileNobodyWatched(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	x := w.launch("a", "echo ready; sleep 100")
	w.stop()
	w.fake.Kill(b.UID, driver.Death{Cause: driver.DeathOOM})
	w.driverOfNext()
	w.open()
	w.start()
	w.until("it is stopped", func() bool {
		b, err := w.Sandboxes().Get(w.ctx, "a")
		return err == nil && b.State == sandbox.Stopped && strings.HasPrefix(b.Reason, "CONTAINER_DIED: OOM-killed: out of memory")
	})
	if x := w.wait("a", x.Seq); x.Exit.Reason != sandbox.EndOOM {
		t.Errorf("its exec ended %+v, want oom", x.Exit)
	}
	if _, err := w.Sandboxes().Start(w.ctx, "a"); err != nil {
		t.Errorf("Start: %v", err)
	}
}

// What a daemon leaves that is killed after each step of a create.
func TestCreateThatACrashCutOff(t *testing.T) {
	row := func(w *world) sandbox.Sandbox {
		spec := sandbox.DefaultSpec()
		b := sandbox.Sandbox{UID: sandbox.NewUID(), ID: "a", Spec: spec, ImageDigest: digest}
		if err := w.store.CreateSandbox(w.ctx, b); err != nil {
			w.t.Fatal(err)
		}
		b.DiskUID = b.UID
		return b
	}
	disk := func(w *world, b *sandbox.Sandbox) string {
		return w.newDisk(b.UID)
	}
	create := func(w *world, b *sandbox.Sandbox, dir string) {
		h, err := w.fake.Create(w.ctx, driver.Spec{
			UID: b.UID, Isolation: b.Spec.Isolation, Limits: b.Spec.Limits,
			Image: driver.Image{Dir: "/"}, Volumes: driver.DiskVolumes(dir, ""), Identity: driver.Identity{ID: "a"},
		})
		if err != nil {
			w.t.Fatal(err)
		}
		b.Handle = h
	}
	note := func(w *world, b *sandbox.Sandbox) {
		if err := w.store.SetHandle(w.ctx, b.UID, b.Handle); err != nil {
			w.t.Fatal(err)
		}
	}
	tests := []struct {
		name string
		do   func(w *world, b *sandbox.Sandbox)
	}{
		{"row", func(*world, *sandbox.Sandbox) {}},
		{"disk", func(w *world, b *sandbox.Sandbox) { disk(w, b) }},
		{"driver create", func(w *world, b *sandbox.Sandbox) { create(w, b, disk(w, b)) }},
		{"handle", func(w *world, b *sandbox.Sandbox) { create(w, b, disk(w, b)); note(w, b) }},
		{"driver start", func(w *world, b *sandbox.Sandbox) {
			create(w, b, disk(w, b))
			note(w, b)
			if err := w.fake.Start(w.ctx, b.Handle); err != nil {
				w.t.Fatal(err)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := stoppedWorld(t)
			b := row(w)
			tt.do(w, &b)
			w.start()
			w.until("the row is failed", func() bool {
				b, err := w.Sandboxes().Get(w.ctx, "a")
				return err == nil && b.State == sandbox.Failed && strings.HasPrefix(b.Reason, "create: interrupted")
			})
			w.create("b") // waits for the reconciliation
			if err := w.Sandboxes().Destroy(w.ctx, "b", false); err != nil {
				t.Fatal(err)
			}
			w.nothingLeft()
			w.create("a")
		})
	}
}

func TestInterruptedDestroyIsFinished(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	x := w.launch("a", "echo ready; sleep 100")
	w.stop()
	w.open()
	// The move is the first thing that a destroy does.
	if _, err := w.store.Move(w.ctx, b.UID, sandbox.Destroyed, store.Change{}); err != nil {
		t.Fatal(err)
	}
	w.driverOfNext()
	w.start()
	if _, err := w.Sandboxes().Get(w.ctx, "a"); !errors.Is(err, errs.NotFound) {
		t.Errorf("Sandbox = %v, want not found", err)
	}
	w.create("b")
	if err := w.Sandboxes().Destroy(w.ctx, "b", false); err != nil {
		t.Fatal(err)
	}
	traces, _ := w.fake.List(w.ctx)
	disks, _ := w.disks.List()
	if len(traces)+len(disks) != 0 {
		t.Errorf("left are %v and %v", traces, disks)
	}
	if got, err := w.store.Exec(w.ctx, b.UID, x.Seq); err != nil || got.Exit == nil || got.Exit.Reason != sandbox.EndDestroyed {
		t.Errorf("its exec ended %+v, %v", got.Exit, err)
	}
}

// TestCutOffRunsAreCleared: what a daemon that was killed in the middle of a
// start or a stop had running of a sandbox is ended by the next one.
func TestCutOffRunsAreCleared(t *testing.T) {
	w := newWorld(t)
	running, stopped := w.create("running"), w.create("stopped")
	if _, err := w.Sandboxes().Stop(w.ctx, "stopped", 0); err != nil {
		t.Fatal(err)
	}
	w.stop()
	w.driverOfNext()
	if err := w.fake.Stop(w.ctx, running.Handle, 0); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	cleared := map[sandbox.UID]bool{}
	w.faults.Before = func(_ context.Context, method string, uid sandbox.UID) {
		mu.Lock()
		defer mu.Unlock()
		cleared[uid] = cleared[uid] || method == "Stop"
	}
	w.open()
	w.start()
	w.until("both are cleared", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return cleared[running.UID] && cleared[stopped.UID]
	})
	for _, id := range []string{"running", "stopped"} {
		if _, err := w.Sandboxes().Start(w.ctx, id); err != nil {
			t.Errorf("Start: %v", err)
		}
	}
}

func TestInterruptedStop(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	w.stop()
	w.driverOfNext()
	if err := w.fake.Stop(w.ctx, b.Handle, 0); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.start()
	w.until("it is stopped", func() bool {
		b, err := w.Sandboxes().Get(w.ctx, "a")
		return err == nil && b.State == sandbox.Stopped && strings.Contains(b.Reason, "the daemon ended while")
	})
}

func TestInterruptedStart(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	w.stop()
	w.driverOfNext()
	if err := w.fake.Start(w.ctx, b.Handle); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.start()
	w.until("it does not run", func() bool {
		st, err := w.fake.Inspect(w.ctx, b.Handle)
		return err == nil && st.Phase != driver.PhaseRunning
	})
	if _, err := w.Sandboxes().Start(w.ctx, "a"); err != nil {
		t.Errorf("Start: %v", err)
	}
	w.sh("a", "true")
}

func TestOrphansAreSwept(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.stop()
	w.driverOfNext()
	w.open()
	uid := sandbox.NewUID()
	dir := w.newDisk(uid)
	if _, err := w.fake.Create(w.ctx, driver.Spec{
		UID: uid, Isolation: sandbox.GVisor, Limits: sandbox.DefaultSpec().Limits,
		Image: driver.Image{Dir: "/"}, Volumes: driver.DiskVolumes(dir, ""),
	}); err != nil {
		t.Fatal(err)
	}
	log, err := w.journals.Create(uid, 1)
	if err != nil {
		t.Fatal(err)
	}
	log.Close()
	w.start()
	w.create("b")
	traces, _ := w.fake.List(w.ctx)
	disks, _ := w.disks.List()
	boxes, _ := w.journals.Boxes()
	if len(traces) != 2 || len(disks) != 2 || len(boxes) != 0 {
		t.Errorf("there are %v, %v and %v, want those of two sandboxes and no journals", traces, disks, boxes)
	}
	w.sh("a", "true")
}

// cutter is a driver whose connections can be cut, as when an agent's end of
// the channel breaks.
type cutter struct {
	driver.Driver

	mu    sync.Mutex
	conns []net.Conn
}

func (c *cutter) DialGuest(ctx context.Context, h driver.Handle) (net.Conn, error) {
	conn, err := c.Driver.DialGuest(ctx, h)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.conns = append(c.conns, conn)
	}
	return conn, err
}

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = nil
}

func TestLostConnectionsLoseNothing(t *testing.T) {
	var c *cutter
	w := newWorld(t, func(cfg *core.Config) {
		c = &cutter{Driver: cfg.Driver}
		cfg.Driver = c
	})
	w.create("a")
	const lines = 3000
	x, err := w.Execs().Start(w.ctx, "a", sandbox.ExecSpec{
		Shell: fmt.Sprintf(`echo x >> runs; for i in $(seq %d); do echo line $i; [ $((i %% 100)) = 0 ] && sleep 0.01; done; exit 5`, lines),
	})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for e, err := range w.Execs().Output(w.ctx, "a", x.Seq, 0, true) {
		if err != nil {
			t.Fatal(err)
		}
		out.Write(e.Output.Data)
		if e.Exit != nil && (e.Exit.Code == nil || *e.Exit.Code != 5) {
			t.Errorf("it ended %+v, want 5", e.Exit)
		}
		c.cut()
	}
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	if out.String() != want.String() {
		t.Errorf("%d bytes came, want %d", out.Len(), want.Len())
	}
	if r := w.sh("a", "cat runs"); string(r.Stdout) != "x\n" {
		t.Errorf("it ran %d times, want once", strings.Count(string(r.Stdout), "x"))
	}
}
