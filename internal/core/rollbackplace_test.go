package core_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/snapshot"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// keepFiles makes a snapshot of the files of a stopped sandbox.
func (w *world) keepFiles(id, name string) {
	w.t.Helper()
	if _, _, err := w.Snapshots().Create(w.ctx, snapshot.Request{Source: id, Name: name}); err != nil {
		w.t.Fatal(err)
	}
}

// A rollback for which there was no place or no memory was refused when the sandbox
// had lost its memory, its commands and its files already.
func TestRollbackWithoutAPlaceChangesNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		edit  func(*core.Config)
		short bool // of memory
		want  errs.Kind
	}{
		"of all":      {func(c *core.Config) { c.Sandboxes.Caps.All = 1 }, false, errs.Exhausted},
		"of a tenant": {func(c *core.Config) { c.Sandboxes.Caps.PerTenant = 1 }, false, errs.OverQuota},
		"of a thread": {func(c *core.Config) { c.Sandboxes.Caps.PerThread = 1 }, false, errs.OverQuota},
		"memory":      {func(c *core.Config) { c.Sandboxes.MemoryReserve = 1 << 30 }, true, errs.LowMemory},
	} {
		for _, sleeps := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", asleep", false: ", stopped"}[sleeps], func(t *testing.T) {
				t.Parallel()
				var free atomic.Int64
				free.Store(64 << 30)
				w := newWorld(t, tt.edit, func(c *core.Config) {
					c.Sandboxes.MemAvailable = func() (int64, error) { return free.Load(), nil }
				})
				w.createAlone("acme", "talk", "a", sandbox.Spec{})
				w.sh("a", "echo then > f")
				if _, _, err := w.Snapshots().Create(as(w.ctx, "alice", "acme"), snapshot.Request{Source: "a", Name: "point", Memory: true}); err != nil {
					t.Fatal(err)
				}
				w.sh("a", "echo now > f")
				x := w.launch("a", "echo ready; while [ ! -e go ]; do sleep 0.01; done")
				if sleeps {
					w.sleep("a", true)
				} else {
					w.halt("a")
				}
				was := w.get("a")
				if tt.short {
					free.Store(1<<30 + 32<<20)
				} else {
					w.createAlone("acme", "talk", "b", sandbox.Spec{})
				}
				_, err := w.Snapshots().Rollback(w.ctx, "a", "point")
				if !errors.Is(err, tt.want) || errs.Public(orNone(err)).RetryAfter <= 0 {
					t.Errorf("Rollback = %v, want %v and when to retry", err, tt.want)
				}
				if got := w.get("a"); got.State != was.State || got.Why() != was.Why() || !got.StoppedAt.Equal(was.StoppedAt) || !got.UpdatedAt.Equal(was.UpdatedAt) {
					t.Errorf("after a refusal it is %s %+v, want %s %+v", got.State, got.Why(), was.State, was.Why())
				}
				if tt.short {
					free.Store(64 << 30)
				} else {
					w.destroy("b")
				}
				if got := w.content("a", "/workspace/f"); got != "now\n" { // which wakes the sleeper
					t.Errorf("after a refusal the file has %q", got)
				}
				if sleeps {
					w.sh("a", "touch go")
					if x := w.wait("a", x.Seq); *x.Exit.Code != 0 {
						t.Errorf("after a refusal its command ended %+v", x.Exit)
					}
				}
				if got, err := w.Snapshots().Rollback(w.ctx, "a", "point"); err != nil || got.State != sandbox.Running {
					t.Errorf("with a place Rollback = %s, %v", got.State, err)
				}
				if got := w.content("a", "/workspace/f"); got != "then\n" {
					t.Errorf("the file has %q", got)
				}
				if tt.short { // it has its memory and its place already
					free.Store(1 << 20)
				}
				if got, err := w.Snapshots().Rollback(w.ctx, "a", "point"); err != nil || got.State != sandbox.Running {
					t.Errorf("Rollback of one that runs = %s, %v", got.State, err)
				}
			})
		}
	}
}

// What a rollback has taken before it breaks off is free again.
func TestRollbackThatFailsGivesItsPlaceBack(t *testing.T) {
	for _, step := range []step{onDisks("Prepare"), onDriver("Destroy"), onDisks("Restore"), onDriver("Restore")} {
		for _, sleeps := range []bool{true, false} {
			t.Run(step.name+map[bool]string{true: ", asleep", false: ", stopped"}[sleeps], func(t *testing.T) {
				t.Parallel()
				b := newBreakable(t)
				b.create("a")
				b.keep("a", "point")
				if sleeps {
					b.sleep("a", false)
				} else {
					b.halt("a")
				}
				step.breaks(b)
				if _, err := b.Snapshots().Rollback(b.ctx, "a", "point"); err == nil {
					t.Error("Rollback succeeded")
				}
				b.mend()
				b.create("b")
			})
		}
	}
}

// A sleeper that went back to files alone ran afterwards, in a place that nobody had
// asked for: it is stopped as one that cannot sleep, and a use starts it.
func TestRollbackOfASleeperToFilesAlone(t *testing.T) {
	for _, auto := range []sandbox.AutoWake{sandbox.AutoWakeIdle, sandbox.AutoWakeNever} {
		t.Run(string(auto), func(t *testing.T) {
			w := newWorld(t, func(c *core.Config) { c.Sandboxes.Caps.All = 1 })
			if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a", Spec: sandbox.Spec{AutoWake: auto}}); err != nil {
				t.Fatal(err)
			}
			w.sh("a", "echo then > f")
			w.halt("a")
			w.keepFiles("a", "files")
			if _, err := w.Sandboxes().Start(w.ctx, "a"); err != nil {
				t.Fatal(err)
			}
			w.sh("a", "echo now > f")
			x := w.launch("a", "echo ready; sleep 1000")
			w.sleep("a", true)
			w.create("b") // takes the place
			got, err := w.Snapshots().Rollback(w.ctx, "a", "files")
			if err != nil || got.State != sandbox.Stopped || got.Cause != sandbox.CauseSleep || !strings.Contains(got.Reason, `rolled back to the snapshot "files"`) {
				t.Fatalf("Rollback = %s %+v, %v", got.State, got.Why(), err)
			}
			if x := w.wait("a", x.Seq); x.Exit.Reason != sandbox.EndStopped || !strings.Contains(x.Exit.Message, "rolled back") {
				t.Errorf("its command ended %+v", x.Exit)
			}
			if found, err := w.fake.List(w.ctx); err != nil || len(found) != 1 || found[0].UID != w.get("b").UID {
				t.Errorf("the driver has %+v, %v, want b alone", found, err)
			}
			if again, err := w.Sandboxes().Sleep(w.ctx, "a", false); err != nil || again.Why() != got.Why() {
				t.Errorf("Sleep of it = %+v, %v", again.Why(), err)
			}
			w.destroy("b")
			if auto == sandbox.AutoWakeNever {
				if _, err := w.Execs().Start(w.ctx, "a", sandbox.ExecSpec{Shell: "true"}); !errors.Is(err, errs.WrongState) {
					t.Errorf("a use of it: %v", err)
				}
				return
			}
			if r := w.sh("a", "cat f"); string(r.Stdout) != "then\n" {
				t.Errorf("it prints %q", r.Stdout)
			}
			if b := w.get("a"); b.Reason != "" || b.Cause != "" {
				t.Errorf("it runs, and says %+v", b.Why())
			}
		})
	}
}

// A rollback to files alone could be done, and its history not say so after a crash.
func TestRollbackToFilesAloneHasItsEventOrBreaksOff(t *testing.T) {
	b := newBreakable(t)
	b.create("a")
	b.halt("a")
	b.keepFiles("a", "files")
	onWrite("INSERT ON events", "NEW.kind = 'sandbox.rolled_back'").breaks(b)
	if _, err := b.Snapshots().Rollback(b.ctx, "a", "files"); err == nil {
		t.Error("Rollback succeeded")
	}
	b.mend()
	b.comesTo("a", sandbox.Stopped, `a rollback to the snapshot "files" broke off: repeat it`)
	if _, err := b.Snapshots().Rollback(b.ctx, "a", "files"); err != nil {
		t.Errorf("Rollback again = %v", err)
	}
	if p, ok := b.payload("a", event.SandboxRolled).(event.Rollback); !ok || p.Name != "files" {
		t.Errorf("the event says %+v", p)
	}
}

// One that was stopped in the place of a sleep was one that a user stopped after a
// rollback, and no use started it.
func TestRollbackOfOneThatWasStoppedInsteadOfASleep(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.sh("a", "echo then > f")
	w.faults.SetFail("CanSleep", errs.E(errs.Unsupported, "a container"))
	if _, err := w.Sandboxes().Sleep(w.ctx, "a", false); err != nil {
		t.Fatal(err)
	}
	w.keepFiles("a", "files")
	w.write("a", "/workspace/f", "now\n")
	got, err := w.Snapshots().Rollback(w.ctx, "a", "files")
	if err != nil || got.State != sandbox.Stopped || got.Cause != sandbox.CauseSleep {
		t.Fatalf("Rollback = %s %+v, %v", got.State, got.Why(), err)
	}
	if r := w.sh("a", "cat f"); string(r.Stdout) != "then\n" {
		t.Errorf("it prints %q", r.Stdout)
	}
}
