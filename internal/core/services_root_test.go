//go:build root

package core_test

import (
	"fmt"
	"testing"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/services"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Copies of a sandbox's memory have its services, which go on: nothing is started
// again, and each belongs to its sandbox from then on.
func TestServicesOfCopiesGoOnAsTheirOwn(t *testing.T) {
	w, _ := realWorld(t)
	// It counts its starts in memory, so each copy tells how often it was started.
	const command = "echo x >> /dev/shm/starts; trap 'echo asked' USR1; while :; do sleep 0.05; done"
	w.createWith("a",
		sandbox.Service{Name: "web", Command: command},
		sandbox.Service{Name: "done", Command: "echo x >> /dev/shm/done", Restart: sandbox.RestartNever},
	)
	parent := w.inState("a", "web", services.Running)
	w.inState("a", "done", services.Stopped)
	if _, err := w.Snapshots().Fork(w.ctx, "a", 2, []string{"one", "two"}); err != nil {
		t.Fatal(err)
	}
	w.keep("a", "point")
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "kept", Snapshot: "point"}); err != nil {
		t.Fatal(err)
	}
	goesOn := func(id string) services.Status {
		t.Helper()
		st := w.inState(id, "web", services.Running)
		if st.PID != parent.PID || st.Restarts != 0 {
			t.Errorf("in %s it is %+v, in the parent %+v", id, st, parent)
		}
		if st := w.service(id, "done"); st.State != services.Stopped {
			t.Errorf("in %s what was done is %+v", id, st)
		}
		if r := w.sh(id, "cat /dev/shm/starts /dev/shm/done"); string(r.Stdout) != "x\nx\n" {
			t.Errorf("in %s the services were started: %q", id, r.Stdout)
		}
		return st
	}
	for _, id := range []string{"a", "one", "two", "kept"} {
		st := goesOn(id)
		// What it prints from now on is in its own journal.
		if r := w.sh(id, fmt.Sprintf("kill -USR1 %d", st.PID)); r.Exec.Exit.Code == nil || *r.Exec.Exit.Code != 0 {
			t.Errorf("in %s: %q %+v", id, r.Stderr, r.Exec.Exit)
		}
		w.until("the output is there", func() bool {
			r, err := w.Execs().Result(w.ctx, id, st.Exec, live.OutputCaps{Stdout: -1, Stderr: -1})
			return err == nil && string(r.Stdout) == "asked\n"
		})
	}
	// The end of one is nobody else's.
	if st, err := w.Services().Stop(w.ctx, "one", "web"); err != nil || st.State != services.Stopped {
		t.Errorf("Stop = %+v, %v", st, err)
	}
	goesOn("a")
	goesOn("two")
	// A rollback brings back what ran.
	if _, err := w.Services().Stop(w.ctx, "a", "web"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Snapshots().Rollback(w.ctx, "a", "point"); err != nil {
		t.Fatal(err)
	}
	goesOn("a")
	// They are the next daemon's too.
	w.sleep("two", false)
	if _, err := w.Sandboxes().Wake(w.ctx, "two"); err != nil {
		t.Fatal(err)
	}
	goesOn("two")
}

// A sandbox that is rolled back to another one's snapshot, with memory, has the other's
// services. One that both declare alike goes on and is not started again; of others, what
// the sandbox does not want ends and what it wants begins.
func TestRollbackToAnotherSandboxesSnapshotKeepsItsServices(t *testing.T) {
	w, _ := realWorld(t)
	web := sandbox.Service{Name: "web", Command: "echo x >> /dev/shm/starts; while :; do sleep 0.05; done"}
	other := func(does string) sandbox.Service {
		return sandbox.Service{Name: "other", Command: "echo " + does + " >> /dev/shm/others; exec sleep 1000"}
	}
	w.createWith("a", web, other("a"), sandbox.Service{Name: "mine", Command: "exec sleep 1001"})
	w.createWith("b", web, other("b"))
	parent := w.inState("a", "web", services.Running)
	for _, name := range []string{"other", "mine"} {
		w.inState("a", name, services.Running)
	}
	w.inState("b", "web", services.Running)
	w.keep("a", "point")
	for range 2 { // and again, to what it is already
		if _, err := w.Snapshots().Rollback(w.ctx, "b", "point"); err != nil {
			t.Fatal(err)
		}
		st := w.inState("b", "web", services.Running)
		if st.PID != parent.PID || st.Restarts != 0 {
			t.Errorf("it is %+v, in the other %+v", st, parent)
		}
		w.until("the other service is the sandbox's own", func() bool {
			r := w.sh("b", "cat /dev/shm/others; ps -eo args | grep -c '^sleep 1001'")
			return string(r.Stdout) == "a\nb\n0\n"
		})
		if r := w.sh("b", "cat /dev/shm/starts"); string(r.Stdout) != "x\n" {
			t.Errorf("it was started %q", r.Stdout)
		}
	}
}

// The services of a copy run already when it begins, so the bound of its tenant's
// commands cannot refuse them: they are followed and can be stopped.
func TestServicesOfCopiesAreKeptBeyondTheTenantsBound(t *testing.T) {
	w, _ := realWorld(t, func(c *core.Config) { c.Sandboxes.Caps.Commands = 1 })
	ctx := as(w.ctx, "somebody", "team")
	if _, err := w.Sandboxes().Create(ctx, lifecycle.CreateRequest{ID: "a", Spec: sandbox.Spec{
		Services: []sandbox.Service{{Name: "web", Command: "sleep 1000"}},
	}}); err != nil {
		t.Fatal(err)
	}
	parent := w.inState("a", "web", services.Running)
	if _, err := w.Snapshots().Fork(ctx, "a", 1, []string{"one"}); err != nil {
		t.Fatal(err)
	}
	if st := w.inState("one", "web", services.Running); st.PID != parent.PID || st.Exec == 0 {
		t.Errorf("in the copy it is %+v, in the parent %+v", st, parent)
	}
	if st, err := w.Services().Stop(ctx, "one", "web"); err != nil || st.State != services.Stopped {
		t.Errorf("Stop = %+v, %v", st, err)
	}
}
