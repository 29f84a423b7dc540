package core_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/storetest"
)

// breakable is a world whose single steps can be broken. It has one place for
// a running sandbox, or as many as it is given, so that a place that is not given back is seen.
type breakable struct {
	*world
	broken *brokenDisks
	mends  []func()
}

func newBreakable(t *testing.T, places ...int) *breakable {
	b := &breakable{broken: &brokenDisks{fail: map[string]error{}}}
	b.world = newWorld(t, func(c *core.Config) {
		b.broken.Storage = c.Disks
		c.Disks, c.Sandboxes.Caps.All = b.broken, 1
		for _, n := range places {
			c.Sandboxes.Caps.All = n
		}
	})
	return b
}

var errDown = errs.E(errs.Unavailable, "down")

// step breaks one thing until the world is mended.
type step struct {
	name   string
	breaks func(b *breakable)
}

func onDriver(method string) step {
	return step{"driver " + method, func(b *breakable) {
		b.faults.SetFail(method, errDown)
		b.mends = append(b.mends, func() { b.faults.SetFail(method, nil) })
	}}
}

func afterDriver(method string) step {
	return step{"after driver " + method, func(b *breakable) {
		b.faults.SetFailAfter(method, errDown)
		b.mends = append(b.mends, func() { b.faults.SetFailAfter(method, nil) })
	}}
}

func onDisks(method string) step {
	return step{"disk " + method, func(b *breakable) {
		b.broken.set(method, errDown)
		b.mends = append(b.mends, func() { b.broken.set(method, nil) })
	}}
}

func onWrite(write, when string) step {
	return step{strings.TrimSpace("write " + write + " " + when), func(b *breakable) {
		b.mends = append(b.mends, storetest.Break(b.t, filepath.Join(b.dir, "cubby.db"), write, when))
	}}
}

func moveTo(s sandbox.State) step {
	return onWrite("UPDATE OF state ON sandboxes", "NEW.state = '"+string(s)+"'")
}

func onPin() step {
	return step{"pin", func(b *breakable) {
		b.images.fail(errDown)
		b.mends = append(b.mends, func() { b.images.fail(nil) })
	}}
}

func onUnpin() step {
	return step{"unpin", func(b *breakable) {
		b.images.failUnpin(errDown)
		b.mends = append(b.mends, func() { b.images.failUnpin(nil) })
	}}
}

// all breaks several things at once.
func all(steps ...step) step {
	var names []string
	for _, s := range steps {
		names = append(names, s.name)
	}
	return step{strings.Join(names, " and "), func(b *breakable) {
		for _, s := range steps {
			s.breaks(b)
		}
	}}
}

func (b *breakable) mend() {
	b.t.Helper()
	for _, mend := range b.mends {
		mend()
	}
	b.mends = nil
}

// comesTo waits until a sandbox's row is as wanted.
func (b *breakable) comesTo(id string, state sandbox.State, reason string) {
	b.t.Helper()
	var got sandbox.Sandbox
	var err error
	defer func() {
		if b.t.Failed() {
			b.t.Logf("the row of %s is %s %q, %v; want %s %q", id, got.State, got.Reason, err, state, reason)
		}
	}()
	b.until("the row is as wanted", func() bool {
		got, err = b.Sandboxes().Get(b.ctx, id)
		return err == nil && got.State == state && strings.HasPrefix(got.Reason, reason)
	})
}

// comesToNothing waits until the host has nothing of any sandbox.
func (b *breakable) comesToNothing() {
	b.t.Helper()
	b.until("nothing is left", func() bool {
		traces, err := b.fake.List(b.ctx)
		disks, diskErr := b.disks.List()
		return err == nil && diskErr == nil && len(traces)+len(disks)+b.images.pinned() == 0
	})
}

func TestEveryStepOfACreateCanBreak(t *testing.T) {
	steps := []struct {
		step
		reason string // of the row, "" when there is none
	}{
		{onWrite("INSERT ON sandboxes", ""), ""},
		{onWrite("INSERT ON sandbox_activity", ""), ""},
		{onWrite("INSERT ON events", "NEW.kind = 'sandbox.created'"), ""},
		{onPin(), "create: down"},
		{onDisks("Create"), "create: down"},
		{onDriver("Create"), "create: down"},
		{onWrite("UPDATE OF handle ON sandboxes", "NEW.handle IS NOT NULL"), "create: internal error"},
		{onDriver("Start"), "create: down"},
		{afterDriver("Start"), "create: down"},
		{moveTo(sandbox.Running), "create: internal error"},
		{onWrite("INSERT ON events", "NEW.kind = 'sandbox.started'"), "create: internal error"},
		{onWrite("UPDATE ON idempotency", ""), "create: internal error"},
		// The undo breaks too.
		{all(onDriver("Start"), onDriver("Destroy")), "create: down"},
		{all(onDriver("Create"), onDriver("Sweep")), "create: down"},
		{all(onDriver("Start"), onDisks("Remove")), "create: down"},
		{all(onDriver("Start"), onUnpin()), "create: down"},
		{all(onDriver("Start"), moveTo(sandbox.Failed)), "create: down"},
		{all(moveTo(sandbox.Running), moveTo(sandbox.Failed), onDriver("Destroy")), "create: internal error"},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			b := newBreakable(t)
			step.breaks(b)
			req := lifecycle.CreateRequest{ID: "a", IdempotencyKey: "k"}
			if _, err := b.Sandboxes().Create(b.ctx, req); err == nil {
				t.Fatal("Create succeeded")
			}
			b.mend()
			if step.reason == "" {
				if _, err := b.Sandboxes().Get(b.ctx, "a"); !errors.Is(err, errs.NotFound) {
					t.Errorf("Sandbox = %v, want not found", err)
				}
			} else {
				b.comesTo("a", sandbox.Failed, step.reason)
			}
			b.comesToNothing()
			// The id, the place and the idempotency key are free again.
			if got, err := b.Sandboxes().Create(b.ctx, req); err != nil || got.State != sandbox.Running {
				t.Errorf("the next Create = %s, %v", got.State, err)
			}
		})
	}
}

// A disk that a create took over goes back, whatever breaks.
func TestEveryStepOfACreateOnAKeptDiskCanBreak(t *testing.T) {
	for _, step := range []step{
		onWrite("DELETE ON kept_disks", ""),
		onDisks("Attach"),
		onDriver("Start"),
		moveTo(sandbox.Running),
		all(onDriver("Start"), onDriver("Destroy")),
		all(onDriver("Start"), moveTo(sandbox.Failed)),
		all(onDriver("Start"), onWrite("INSERT ON kept_disks", "")),
		all(onDriver("Start"), onDisks("Detach")),
	} {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			b := newBreakable(t)
			b.create("a")
			b.sh("a", "echo kept > file")
			if err := b.Sandboxes().Destroy(b.ctx, "a", true); err != nil {
				t.Fatal(err)
			}
			step.breaks(b)
			if _, err := b.Sandboxes().Create(b.ctx, lifecycle.CreateRequest{ID: "a"}); err == nil {
				t.Fatal("Create succeeded")
			}
			b.mend()
			b.until("the sandbox can be made", func() bool {
				_, err := b.Sandboxes().Create(b.ctx, lifecycle.CreateRequest{ID: "a"})
				return err == nil
			})
			if r := b.sh("a", "cat file"); string(r.Stdout) != "kept\n" {
				t.Errorf("the file has %q", r.Stdout)
			}
		})
	}
}

func TestEveryStepOfAStartCanBreak(t *testing.T) {
	for _, lost := range []bool{false, true} { // the driver lost what it had of it
		steps := []step{
			onDisks("Attach"),
			onDriver("Start"),
			afterDriver("Start"),
			moveTo(sandbox.Running),
			onWrite("INSERT ON events", "NEW.kind = 'sandbox.started'"),
			all(moveTo(sandbox.Running), onDriver("Stop")),
			all(afterDriver("Start"), onDriver("Stop")),
			all(afterDriver("Start"), onDisks("Detach")),
		}
		name := "known"
		if lost {
			name = "lost"
			steps = append(steps, onPin(), onDriver("Sweep"), onDriver("Create"),
				onWrite("UPDATE OF handle ON sandboxes", ""),
				all(onWrite("UPDATE OF handle ON sandboxes", ""), onDriver("Destroy")))
		}
		for _, step := range steps {
			t.Run(name+" "+step.name, func(t *testing.T) {
				t.Parallel()
				b := newBreakable(t)
				box := b.create("a")
				b.sh("a", "echo kept > file")
				if _, err := b.Sandboxes().Stop(b.ctx, "a", 0); err != nil {
					t.Fatal(err)
				}
				if lost {
					if err := b.fake.Sweep(b.ctx, box.UID); err != nil {
						t.Fatal(err)
					}
				}
				step.breaks(b)
				if _, err := b.Sandboxes().Start(b.ctx, "a"); err == nil {
					t.Fatal("Start succeeded")
				}
				b.mend()
				b.comesTo("a", sandbox.Stopped, "")
				b.until("nothing runs", func() bool {
					st, err := b.fake.Inspect(b.ctx, box.Handle)
					return err == nil && st.Phase != "running"
				})
				// Its place is free.
				b.until("another can be made", func() bool {
					_, err := b.Sandboxes().Create(b.ctx, lifecycle.CreateRequest{ID: "b"})
					return err == nil
				})
				if err := b.Sandboxes().Destroy(b.ctx, "b", false); err != nil {
					t.Fatal(err)
				}
				if _, err := b.Sandboxes().Start(b.ctx, "a"); err != nil {
					t.Errorf("the next Start: %v", err)
				}
				if r := b.sh("a", "cat file"); string(r.Stdout) != "kept\n" {
					t.Errorf("the file has %q", r.Stdout)
				}
				if b.images.pinned() != 1 {
					t.Errorf("%d images are pinned, want 1", b.images.pinned())
				}
			})
		}
	}
}

func TestEveryStepOfAStopCanBreak(t *testing.T) {
	for _, step := range []struct {
		step
		runs bool // afterwards
	}{
		{onDriver("Stop"), true},
		{afterDriver("Stop"), false},
		{onWrite("UPDATE ON execs", "NEW.status IN ('done', 'error')"), false},
		{onWrite("INSERT ON events", "NEW.kind = 'exec.finished'"), false},
		{moveTo(sandbox.Stopped), false},
		{onWrite("INSERT ON events", "NEW.kind = 'sandbox.stopped'"), false},
	} {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			b := newBreakable(t)
			box := b.create("a")
			x := b.launch("a", "echo ready; exec sleep 600")
			step.breaks(b)
			_, err := b.Sandboxes().Stop(b.ctx, "a", 0)
			b.mend()
			if step.runs {
				if err == nil {
					t.Error("Stop succeeded")
				}
				if r := b.sh("a", "echo on"); string(r.Stdout) != "on\n" {
					t.Errorf("a command after it wrote %q", r.Stdout)
				}
				return
			}
			b.comesTo("a", sandbox.Stopped, "")
			got, err := b.Sandboxes().Get(b.ctx, "a")
			if err != nil || strings.Contains(got.Reason, "behind cubby's back") {
				t.Errorf("the reason is %q, %v", got.Reason, err)
			}
			if x := b.wait("a", x.Seq); x.Exit.Reason != sandbox.EndStopped {
				t.Errorf("the command ended %+v", x.Exit)
			}
			if st, err := b.fake.Inspect(b.ctx, box.Handle); err != nil || st.Phase == "running" {
				t.Errorf("the driver says %s, %v", st.Phase, err)
			}
			if _, err := b.Sandboxes().Start(b.ctx, "a"); err != nil {
				t.Errorf("Start: %v", err)
			}
		})
	}
}

func TestEveryStepOfADestroyCanBreak(t *testing.T) {
	for _, keep := range []bool{false, true} {
		for _, step := range []step{
			moveTo(sandbox.Destroyed),
			onWrite("DELETE ON sandbox_labels", ""),
			onWrite("INSERT ON events", "NEW.kind = 'sandbox.destroyed'"),
			onDriver("Destroy"),
			afterDriver("Destroy"),
			onUnpin(),
			onWrite("UPDATE ON execs", "NEW.status IN ('done', 'error')"),
			onDisks("Remove"),
			onDisks("Detach"),
			onWrite("INSERT ON kept_disks", ""),
		} {
			name := "whole "
			if keep {
				name = "keeping the disk "
			}
			t.Run(name+step.name, func(t *testing.T) {
				t.Parallel()
				b := newBreakable(t)
				labels := map[string]string{"a": "b"}
				if _, err := b.Sandboxes().Create(b.ctx, lifecycle.CreateRequest{ID: "a", Spec: sandbox.Spec{Labels: labels}}); err != nil {
					t.Fatal(err)
				}
				b.sh("a", "echo kept > file")
				x := b.launch("a", "echo ready; exec sleep 600")
				step.breaks(b)
				err := b.Sandboxes().Destroy(b.ctx, "a", keep)
				b.mend()
				if err != nil {
					got, findErr := b.Sandboxes().Get(b.ctx, "a")
					if findErr != nil || strings.Contains(got.Reason, "behind cubby's back") {
						t.Errorf("the row is %s %q, %v", got.State, got.Reason, findErr)
					}
					if err := b.Sandboxes().Destroy(b.ctx, "a", keep); err != nil {
						t.Fatalf("the next Destroy: %v", err)
					}
				}
				if _, err := b.Sandboxes().Get(b.ctx, "a"); !errors.Is(err, errs.NotFound) {
					t.Errorf("Sandbox = %v, want not found", err)
				}
				b.until("the row of the command ends", func() bool {
					list, err := b.store.UnfinishedExecs(b.ctx)
					return err == nil && len(list) == 0
				})
				ends := []sandbox.EndReason{sandbox.EndDestroyed, sandbox.EndStopped}
				if x := b.wait("a", x.Seq); !slices.Contains(ends, x.Exit.Reason) {
					t.Errorf("the command ended %+v", x.Exit)
				}
				if keep {
					b.create("a")
					if r := b.sh("a", "cat file"); string(r.Stdout) != "kept\n" {
						t.Errorf("the file has %q", r.Stdout)
					}
					if _, err := b.Sandboxes().Purge(b.ctx, "a"); err != nil {
						t.Fatal(err)
					}
				}
				b.comesToNothing()
			})
		}
	}
}

func TestEveryStepOfAPurgeCanBreak(t *testing.T) {
	for _, step := range []step{
		onWrite("DELETE ON kept_disks", ""),
		onDisks("Remove"),
	} {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			b := newBreakable(t)
			b.create("a")
			if err := b.Sandboxes().Destroy(b.ctx, "a", true); err != nil {
				t.Fatal(err)
			}
			step.breaks(b)
			if _, err := b.Sandboxes().Purge(b.ctx, "a"); err == nil {
				t.Fatal("Purge succeeded")
			}
			b.mend()
			if _, err := b.Sandboxes().Purge(b.ctx, "a"); err != nil && !errors.Is(err, errs.NotFound) {
				t.Errorf("the next Purge: %v", err)
			}
			b.comesToNothing()
		})
	}
}
