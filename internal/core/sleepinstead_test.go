package core_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/storetest"
)

// A sleep of a sandbox that was stopped in the place of a sleep is done already,
// whoever asked for the first one. What a user stopped is not asleep.
func TestSleepOfOneThatWasStoppedInsteadWasRefused(t *testing.T) {
	c := &clock{now: time.Now()}
	w := newWorld(t, func(cfg *core.Config) { cfg.Now = c.Now })
	timeout := time.Hour
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a", IdleTimeout: &timeout}); err != nil {
		t.Fatal(err)
	}
	w.faults.SetFail("CanSleep", errs.E(errs.Unsupported, "a container"))
	for name, rest := range map[string]func(){
		"asked for": func() {
			if _, err := w.Sandboxes().Sleep(w.ctx, "a", false); err != nil {
				t.Fatal(err)
			}
		},
		"idle": func() {
			w.until("it is reaped", func() bool {
				c.add(24 * time.Hour) // the end of its last command is a use too, and may come late
				w.Reap()
				return w.get("a").State == sandbox.Stopped
			})
		},
	} {
		rest()
		first := w.get("a")
		if first.State != sandbox.Stopped || first.Reason == "" {
			t.Fatalf("%s: it is %s, %q", name, first.State, first.Reason)
		}
		for _, force := range []bool{false, true} {
			again, err := w.Sandboxes().Sleep(w.ctx, "a", force)
			if err != nil || again.State != first.State || again.Reason != first.Reason || !again.StoppedAt.Equal(first.StoppedAt) {
				t.Errorf("%s: Sleep again = %s, %q, %v; want %q", name, again.State, again.Reason, err, first.Reason)
			}
		}
		w.sh("a", "true")
	}
	w.halt("a")
	if _, err := w.Sandboxes().Sleep(w.ctx, "a", false); !errors.Is(err, errs.WrongState) {
		t.Errorf("Sleep of one that a user stopped: %v", err)
	}
}

// A use that comes while a sandbox is stopped in the place of a sleep, or because it
// is idle, waits and starts it; one that was there before keeps it running.
func TestUseDuringAStopInsteadOfASleepWasLost(t *testing.T) {
	sleep := func(w *world) error {
		_, err := w.Sandboxes().Sleep(w.ctx, "a", false)
		return err
	}
	for name, tt := range map[string]struct {
		policy sandbox.IdlePolicy
		fails  map[string]errs.Kind
		rest   func(*world, *clock) error
		inUse  error
	}{
		"it cannot sleep": {
			sandbox.IdleSleep, map[string]errs.Kind{"CanSleep": errs.Unsupported}, func(w *world, _ *clock) error { return sleep(w) }, errs.InUse,
		},
		"it turns out that it cannot": {
			sandbox.IdleSleep, map[string]errs.Kind{"Sleep": errs.Unsupported}, func(w *world, _ *clock) error { return sleep(w) }, errs.InUse,
		},
		"there is no room": {
			sandbox.IdleSleep, map[string]errs.Kind{"Sleep": errs.Exhausted}, func(w *world, _ *clock) error { return sleep(w) }, errs.InUse,
		},
		"it is idle": {
			sandbox.IdleStop, nil, func(w *world, c *clock) error {
				c.add(24 * time.Hour)
				for _, err := range w.Reap() {
					return err
				}
				return nil
			}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &clock{now: time.Now()}
			w := newWorld(t, func(cfg *core.Config) { cfg.Now = c.Now })
			timeout := time.Hour
			a, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a", IdleTimeout: &timeout, Spec: sandbox.Spec{IdlePolicy: tt.policy}})
			if err != nil {
				t.Fatal(err)
			}
			for method, kind := range tt.fails {
				w.faults.SetFail(method, errs.E(kind, "it cannot"))
			}
			// In time.
			w.sh("a", "echo x > file")
			r, _, err := w.Files().Read(w.ctx, "a", "file", 0, -1)
			if err != nil {
				t.Fatal(err)
			}
			if err := tt.rest(w, c); !errors.Is(err, tt.inUse) {
				t.Errorf("during a use: %v, want %v", err, tt.inUse)
			}
			if s := w.get("a").State; s != sandbox.Running {
				t.Errorf("during a use it is %s", s)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			// Later.
			var once sync.Once
			stopping, used := make(chan struct{}), make(chan struct{})
			w.faults.SetBefore(func(_ context.Context, method string, _ sandbox.UID) {
				if method != "Stop" {
					return
				}
				once.Do(func() {
					close(stopping)
					go func() {
						defer close(used)
						r, err := w.Execs().Run(w.ctx, "a", sandbox.ExecSpec{Shell: "cat file"}, -1, live.OutputCaps{Stdout: -1})
						if err != nil || string(r.Stdout) != "x\n" {
							t.Errorf("a use during the stop: %q, %v", r.Stdout, err)
						}
					}()
					w.until("it waits", func() bool { return w.Sandboxes().Waiters(a.UID) == 1 })
				})
			})
			w.until("it is stopped", func() bool {
				if err := tt.rest(w, c); err != nil && !errors.Is(err, errs.InUse) { // of a moment ago
					t.Errorf("without a use: %v", err)
				}
				select {
				case <-stopping:
					return true
				default:
					return false
				}
			})
			<-used
			if b := w.get("a"); tt.policy != sandbox.IdleStop && (b.State != sandbox.Running || b.Reason != "") {
				t.Errorf("after the use it is %s, %q", b.State, b.Reason)
			}
		})
	}
}

// A stop that fails leaves a sandbox that can be used.
func TestFailedStopInsteadOfASleepRefusesNoUse(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.faults.SetFail("CanSleep", errs.E(errs.Unsupported, "a container"))
	w.faults.SetFail("Stop", errDown)
	if _, err := w.Sandboxes().Sleep(w.ctx, "a", false); !errors.Is(err, errDown) {
		t.Errorf("Sleep = %v", err)
	}
	if r := w.sh("a", "echo it runs on"); string(r.Stdout) != "it runs on\n" {
		t.Errorf("it printed %q", r.Stdout)
	}
}

// A sleep that the end of the daemon cut off, after the sandbox had been stopped in its
// place or slept and before the store knew, leaves one that says why it rests.
func TestSleepThatWasCutOffLeavesAReason(t *testing.T) {
	for state, stopped := range map[sandbox.State]bool{sandbox.Stopped: true, sandbox.Sleeping: false} {
		t.Run(string(state), func(t *testing.T) {
			w := newWorld(t)
			w.create("a")
			if stopped {
				w.faults.SetFail("CanSleep", errs.E(errs.Unsupported, "a container"))
			}
			mend := storetest.Break(t, filepath.Join(w.dir, "cubby.db"), "UPDATE OF state ON sandboxes", "NEW.state = '"+string(state)+"'")
			if _, err := w.Sandboxes().Sleep(w.ctx, "a", false); err == nil {
				t.Fatal("a sleep that cannot be noted is one")
			}
			w.stop()
			mend()
			w.driverOfNext()
			w.open()
			w.start()
			if b := w.get("a"); b.State != state || b.Cause != sandbox.CauseInterrupted || !strings.Contains(b.Reason, "the daemon ended while") {
				t.Errorf("it is %s: %s, %q", b.State, b.Cause, b.Reason)
			}
			if r := w.sh("a", "echo on"); string(r.Stdout) != "on\n" {
				t.Errorf("a use of it: %q", r.Stdout)
			}
		})
	}
}
