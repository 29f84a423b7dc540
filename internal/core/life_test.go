package core_test

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/storetest"
)

func TestStopAndStart(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.sh("a", "echo kept > file")
	for range 2 { // stopping twice is once
		b, err := w.Sandboxes().Stop(w.ctx, "a", 0)
		if err != nil || b.State != sandbox.Stopped || b.StoppedAt.IsZero() {
			t.Fatalf("Stop = %s, %v", b.State, err)
		}
	}
	for range 2 {
		b, err := w.Sandboxes().Start(w.ctx, "a")
		if err != nil || b.State != sandbox.Running || b.Reason != "" {
			t.Fatalf("Start = %s, %v", b.State, err)
		}
	}
	if r := w.sh("a", "cat file"); string(r.Stdout) != "kept\n" || r.Exec.Seq != 2 {
		t.Errorf("after a restart exec %d read %q", r.Exec.Seq, r.Stdout)
	}
}

func TestStartThatFailsLeavesItStopped(t *testing.T) {
	down := errs.E(errs.Unavailable, "down")
	for _, after := range []bool{false, true} {
		w := newWorld(t, func(c *core.Config) { c.Sandboxes.Caps.All = 1 })
		b := w.create("a")
		w.sh("a", "echo kept > file")
		if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
			t.Fatal(err)
		}
		if after {
			w.faults.SetFailAfter("Start", down)
		} else {
			w.faults.SetFail("Start", down)
		}
		if _, err := w.Sandboxes().Start(w.ctx, "a"); !errors.Is(err, errs.Unavailable) {
			t.Errorf("Start = %v, want unavailable", err)
		}
		if got, err := w.Sandboxes().Get(w.ctx, "a"); err != nil || got.State != sandbox.Stopped {
			t.Errorf("the row is %s, %v, want stopped", got.State, err)
		}
		if st, err := w.fake.Inspect(w.ctx, b.Handle); err != nil || st.Phase == driver.PhaseRunning {
			t.Errorf("the driver says %s, %v, want that it does not run", st.Phase, err)
		}
		w.faults.SetFailAfter("Start", nil)
		w.faults.SetFail("Start", nil)
		if _, err := w.Sandboxes().Start(w.ctx, "a"); err != nil {
			t.Errorf("the next Start: %v", err)
		}
		if r := w.sh("a", "cat file"); string(r.Stdout) != "kept\n" {
			t.Errorf("the file has %q", r.Stdout)
		}
	}
}

func TestStartWithoutTheDriversNotes(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	w.sh("a", "echo kept > file")
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	if err := w.fake.Sweep(w.ctx, b.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Sandboxes().Start(w.ctx, "a"); err != nil {
		t.Fatalf("Start: %v", err)
	}
	if r := w.sh("a", "cat file"); string(r.Stdout) != "kept\n" {
		t.Errorf("the file has %q", r.Stdout)
	}
}

func TestStopThatFailsLeavesItRunning(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.faults.SetFail("Stop", errs.E(errs.Unavailable, "down"))
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Stop = %v, want unavailable", err)
	}
	if r := w.sh("a", "echo on"); string(r.Stdout) != "on\n" {
		t.Errorf("a command after it wrote %q", r.Stdout)
	}
}

func TestDestroyLeavesNothing(t *testing.T) {
	w := newWorld(t)
	for _, state := range []string{"running", "stopped", "dead"} {
		b := w.create("a")
		switch state {
		case "stopped":
			if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
				t.Fatal(err)
			}
		case "dead":
			w.fake.Kill(b.UID, driver.Death{Cause: driver.DeathExit, Code: 1})
		}
		if err := w.Sandboxes().Destroy(w.ctx, "a", false); err != nil {
			t.Errorf("Destroy while %s: %v", state, err)
		}
		if _, err := w.Sandboxes().Get(w.ctx, "a"); !errors.Is(err, errs.NotFound) {
			t.Errorf("Sandbox = %v, want not found", err)
		}
		w.nothingLeft()
	}
	if err := w.Sandboxes().Destroy(w.ctx, "a", false); !errors.Is(err, errs.NotFound) {
		t.Errorf("a second Destroy = %v, want not found", err)
	}
}

func TestHistoryOutlivesTheSandbox(t *testing.T) {
	w := newWorld(t)
	mine, theirs := as(w.ctx, "me", "one"), as(w.ctx, "them", "two")
	run := func(ctx context.Context, id, script string) {
		t.Helper()
		if _, err := w.Sandboxes().Create(ctx, lifecycle.CreateRequest{ID: id}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Execs().Run(ctx, id, sandbox.ExecSpec{Shell: script}, -1, live.OutputCaps{}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(ctx context.Context, want string) {
		t.Helper()
		r, err := w.Execs().Result(ctx, "A", 1, live.OutputCaps{Stdout: -1})
		if err != nil || string(r.Stdout) != want {
			t.Errorf("Result = %q, %v, want %q", r.Stdout, err, want)
		}
		if err := w.Execs().CheckOutput(ctx, "a", 1); err != nil {
			t.Errorf("CheckOutput = %v", err)
		}
		if list, err := w.Execs().List(ctx, "a", live.ExecQuery{}); err != nil || len(list) != 1 {
			t.Errorf("Execs = %v, %v, want one", list, err)
		}
		if events, _, err := w.Events().List(ctx, "a", 0, 0); err != nil || len(events) == 0 {
			t.Errorf("Events = %v, %v", events, err)
		}
	}
	for _, out := range []string{"first", "second"} {
		run(mine, "a", "printf "+out)
		check(mine, out) // a live sandbox comes before a destroyed one
		if err := w.Sandboxes().Destroy(mine, "a", false); err != nil {
			t.Fatal(err)
		}
		check(mine, out) // and the newest destroyed one before others
	}
	if _, err := w.Sandboxes().Get(mine, "a"); !errors.Is(err, errs.NotFound) {
		t.Errorf("Sandbox = %v, want not found", err)
	}
	if _, err := w.Execs().Start(mine, "a", sandbox.ExecSpec{Shell: "true"}); !errors.Is(err, errs.NotFound) {
		t.Errorf("Exec = %v, want not found", err)
	}
	if _, err := w.Execs().Cancel(mine, "a", 1); !errors.Is(err, errs.NotFound) {
		t.Errorf("Cancel = %v, want not found", err)
	}
	if _, err := w.Execs().List(theirs, "a", live.ExecQuery{}); !errors.Is(err, errs.NotFound) {
		t.Errorf("another tenant's Execs = %v, want not found", err)
	}
	run(theirs, "a", "printf theirs")
	check(theirs, "theirs")
	check(mine, "second")
}

func TestDestroyThatBreaksIsFinishedLater(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.faults.SetFail("Destroy", errs.E(errs.Unavailable, "down"))
	if err := w.Sandboxes().Destroy(w.ctx, "a", false); err != nil {
		t.Errorf("Destroy: %v", err)
	}
	w.create("a") // the id is free
	w.until("the traces are swept", func() bool {
		traces, err := w.fake.List(w.ctx)
		return err == nil && len(traces) == 1
	})
}

func TestReusedIDStartsEmpty(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.sh("a", "echo secret > file")
	if err := w.Sandboxes().Destroy(w.ctx, "a", false); err != nil {
		t.Fatal(err)
	}
	w.create("a")
	if r := w.sh("a", "ls"); string(r.Stdout) != "" || r.Exec.Seq != 1 {
		t.Errorf("the new sandbox's exec %d sees %q", r.Exec.Seq, r.Stdout)
	}
}

func TestKeptDisk(t *testing.T) {
	w := newWorld(t)
	mine, theirs := as(w.ctx, "me", "one"), as(w.ctx, "them", "two")
	owner := sandbox.Spec{External: sandbox.External{UserID: "u1"}}
	if _, err := w.Sandboxes().Create(mine, lifecycle.CreateRequest{ID: "a", Spec: owner}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Files().Write(mine, "a", "file", strings.NewReader("kept"), sandbox.FileWrite{}); err != nil {
		t.Fatal(err)
	}
	if err := w.Sandboxes().Destroy(mine, "a", true); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Sandboxes().Create(theirs, lifecycle.CreateRequest{ID: "a", Spec: owner}); !errors.Is(err, errs.Conflict) {
		t.Errorf("another tenant's Create = %v, want conflict", err)
	}
	if _, err := w.Sandboxes().Create(mine, lifecycle.CreateRequest{ID: "A"}); !errors.Is(err, errs.Conflict) {
		t.Errorf("another user's Create = %v, want conflict", err)
	}
	// A create that fails gives the disk back.
	w.faults.SetFail("Start", errs.E(errs.Unavailable, "down"))
	if _, err := w.Sandboxes().Create(mine, lifecycle.CreateRequest{ID: "a", Spec: owner}); !errors.Is(err, errs.Unavailable) {
		t.Fatalf("Create = %v, want unavailable", err)
	}
	w.faults.SetFail("Start", nil)
	if _, err := w.Sandboxes().Create(mine, lifecycle.CreateRequest{ID: "a", Spec: owner}); err != nil {
		t.Fatal(err)
	}
	r, _, err := w.Files().Read(mine, "a", "file", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := io.ReadAll(r)
	r.Close()
	if string(got) != "kept" {
		t.Errorf("the file has %q, want kept", got)
	}
	w.sh("a", "head -c 100000 /dev/zero > large")
	if err := w.Sandboxes().Destroy(mine, "a", true); err != nil {
		t.Fatal(err)
	}
	w.restart() // a kept disk is no orphan
	if _, err := w.Sandboxes().Purge(theirs, "a"); !errors.Is(err, errs.NotFound) {
		t.Errorf("another tenant's Purge = %v, want not found", err)
	}
	// The tenant is whose the files are; they are on the sandbox's own disk.
	if freed, err := w.Sandboxes().Purge(mine, "a"); err != nil || freed < 100000 {
		t.Errorf("Purge = %d, %v", freed, err)
	}
	w.nothingLeft()
	if _, err := w.Sandboxes().Purge(mine, "a"); !errors.Is(err, errs.NotFound) {
		t.Errorf("a second Purge = %v, want not found", err)
	}
}

func TestKeptDiskTellsItsSize(t *testing.T) {
	for _, journal := range []int64{0, 256 << 20} {
		w := newWorld(t, func(cfg *core.Config) { cfg.Sandboxes.JournalBytes = journal })
		for _, bytes := range []int64{64 << 20, 8 << 30} {
			ask := func(n int64) (sandbox.Sandbox, error) {
				return w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a", Spec: sandbox.Spec{Limits: sandbox.Limits{DiskBytes: n}}})
			}
			if _, err := ask(bytes); err != nil {
				t.Fatal(err)
			}
			for _, asked := range []int64{0, bytes} {
				if err := w.Sandboxes().Destroy(w.ctx, "a", true); err != nil {
					t.Fatal(err)
				}
				if _, err := ask(bytes / 2); !errors.Is(err, errs.Conflict) || errs.Public(err).Hint == "" {
					t.Errorf("a create that asks for another size = %v, want conflict and a hint", err)
				}
				if b, err := ask(asked); err != nil || b.Spec.Limits.DiskBytes != bytes {
					t.Errorf("asked for %d there are %d, %v, want %d", asked, b.Spec.Limits.DiskBytes, err, bytes)
				}
			}
			if _, err := w.Sandboxes().Purge(w.ctx, "a"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestPurgeOfALiveSandbox(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.sh("a", "head -c 100000 /dev/zero > file")
	if freed, err := w.Sandboxes().Purge(w.ctx, "a"); err != nil || freed < 100000 {
		t.Errorf("Purge = %d, %v", freed, err)
	}
	w.nothingLeft()
}

// TestDeathWhileTheStoreIsAway is not forgotten.
func TestDeathWhileTheStoreIsAway(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	x := w.launch("a", "echo ready; sleep 1000")
	mend := storetest.Hide(t, filepath.Join(w.dir, "cubby.db"), "sandboxes")
	w.fake.Kill(b.UID, driver.Death{Cause: driver.DeathSignal, Signal: "SIGKILL"})
	time.Sleep(300 * time.Millisecond) // for who looks it up
	mend()
	w.until("it is stopped", func() bool {
		b, err := w.Sandboxes().Get(w.ctx, "a")
		return err == nil && b.State == sandbox.Stopped
	})
	if x = w.wait("a", x.Seq); x.Exit.Reason != sandbox.EndDied {
		t.Errorf("its command ended %+v", x.Exit)
	}
}

func TestDeathIsReported(t *testing.T) {
	tests := []struct {
		death driver.Death
		want  string
		end   sandbox.EndReason // of the command that ran
	}{
		{driver.Death{Cause: driver.DeathOOM}, "CONTAINER_DIED: OOM-killed: out of memory", sandbox.EndOOM},
		{driver.Death{Cause: driver.DeathSignal, Signal: "SIGKILL"}, "CONTAINER_DIED: it was killed by SIGKILL", sandbox.EndDied},
		{driver.Death{Cause: driver.DeathExit, Code: 2}, "CONTAINER_DIED: its init process exited with code 2", sandbox.EndDied},
		{driver.Death{Cause: driver.DeathRemoved}, "CONTAINER_DIED: it was removed from the host", sandbox.EndDied},
		{driver.Death{Cause: driver.DeathUnknown}, "CONTAINER_DIED: nobody knows why", sandbox.EndDied},
	}
	w := newWorld(t)
	w.create("a")
	for _, tt := range tests {
		b, err := w.Sandboxes().Start(w.ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		w.sh("a", "echo alive > file")
		x := w.launch("a", "echo ready; sleep 1000")
		began := time.Now()
		w.fake.Kill(b.UID, tt.death)
		w.until("it is stopped", func() bool {
			b, err = w.Sandboxes().Get(w.ctx, "a")
			return err == nil && b.State == sandbox.Stopped
		})
		if !strings.HasPrefix(b.Reason, tt.want) || !strings.Contains(b.Reason, "start it again") {
			t.Errorf("the reason is %q, want %q and a hint", b.Reason, tt.want)
		}
		if oom := tt.end == sandbox.EndOOM; !b.Cause.Died() || (b.Cause == sandbox.CauseOOM) != oom {
			t.Errorf("the cause is %q", b.Cause)
		}
		x = w.wait("a", x.Seq)
		if x.Exit.Reason != tt.end || x.Exit.Message != b.Reason {
			t.Errorf("the command ended %+v, want %s and %q", x.Exit, tt.end, b.Reason)
		}
		t.Logf("reported after %s, to its command after %s", time.Since(began), x.FinishedAt.Sub(began))
		_, err = w.Execs().Start(w.ctx, "a", sandbox.ExecSpec{Shell: "true"})
		if !errors.Is(err, errs.WrongState) || !strings.Contains(errs.Public(err).Hint, "CONTAINER_DIED") {
			t.Errorf("Exec = %v with hint %q, want wrong state and why", err, errs.Public(err).Hint)
		}
	}
}

func TestUpdate(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	labels, ports := map[string]string{"team": "x"}, []int{3000}
	network := sandbox.Policy{Mode: sandbox.NetworkNone}
	b, err := w.Sandboxes().Update(w.ctx, "a", lifecycle.Patch{Labels: &labels, Ports: &ports, Network: &network})
	if err != nil || b.Spec.Labels["team"] != "x" || b.Spec.Ports[0] != 3000 || b.Spec.Network.Mode != sandbox.NetworkNone {
		t.Errorf("Update = %+v, %v", b.Spec, err)
	}
	page, err := w.Sandboxes().List(w.ctx, lifecycle.Query{Labels: labels})
	if err != nil || len(page.Sandboxes) != 1 {
		t.Errorf("List by label = %d, %v, want 1", len(page.Sandboxes), err)
	}
	for _, tt := range []struct {
		patch, want sandbox.Policy
		err         error
	}{
		{sandbox.Policy{Mode: sandbox.NetworkOpen}, sandbox.Policy{Mode: sandbox.NetworkOpen}, nil},
		{sandbox.Policy{Allow: []string{"a.example"}}, sandbox.Policy{}, errs.Invalid}, // the mode stays open
		{sandbox.Policy{Mode: sandbox.NetworkAllowlist}, sandbox.Policy{Mode: sandbox.NetworkAllowlist}, nil},
		{sandbox.Policy{Allow: []string{"a.example"}}, sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"a.example"}}, nil},
		{sandbox.Policy{}, sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"a.example"}}, nil},
		{sandbox.Policy{Allow: []string{}}, sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{}}, nil},
	} {
		b, err := w.Sandboxes().Update(w.ctx, "a", lifecycle.Patch{Network: &tt.patch})
		if !errors.Is(err, tt.err) || err == nil && (b.Spec.Network.Mode != tt.want.Mode || !slices.Equal(b.Spec.Network.Allow, tt.want.Allow)) {
			t.Errorf("Update to %+v = %+v, %v, want %+v, %v", tt.patch, b.Spec.Network, err, tt.want, tt.err)
		}
	}
	bad := sandbox.Visibility("secret")
	if _, err := w.Sandboxes().Update(w.ctx, "a", lifecycle.Patch{Visibility: &bad}); !errors.Is(err, errs.Invalid) {
		t.Errorf("Update = %v, want invalid", err)
	}
	if _, err := w.Sandboxes().Update(w.ctx, "nobody", lifecycle.Patch{}); !errors.Is(err, errs.NotFound) {
		t.Errorf("Update = %v, want not found", err)
	}
}

func TestStats(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.sh("a", "echo some output")
	st, err := w.Sandboxes().Stats(w.ctx, "a")
	if err != nil || st.MemoryBytes == 0 || st.JournalBytes == 0 || st.At.IsZero() {
		t.Errorf("Stats = %+v, %v", st, err)
	}
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	if st, err := w.Sandboxes().Stats(w.ctx, "a"); err != nil || st.MemoryBytes != 0 {
		t.Errorf("Stats while stopped = %+v, %v", st, err)
	}
}

func TestCallsAfterTheEndAreRefused(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	svc := w.Service
	w.stop()
	if _, err := svc.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{}); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Create = %v, want unavailable", err)
	}
	if _, err := svc.Sandboxes().Stop(w.ctx, "a", 0); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Stop = %v, want unavailable", err)
	}
}
