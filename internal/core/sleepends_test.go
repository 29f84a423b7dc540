package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// All who use a sleeping sandbox at once wake it once.
func TestUsesAtOnceWakeOnce(t *testing.T) {
	const users = 20
	w := stoppedWorld(t)
	var wakes atomic.Int32
	w.faults.Before = func(_ context.Context, method string, _ sandbox.UID) {
		if method == "Wake" {
			wakes.Add(1)
		}
	}
	w.start()
	w.create("a")
	w.sleep("a", false)
	var all sync.WaitGroup
	for i := range users {
		all.Go(func() {
			if i%2 == 0 {
				w.sh("a", "true")
			} else if _, err := w.Files().Stat(w.ctx, "a", ".", true); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := wakes.Load(); n != 1 {
		t.Errorf("it was woken %d times", n)
	}
}

// Sleeps, wakes and uses at the same time lose nothing.
func TestSleepsAndUsesAtOnce(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	ended := make(chan struct{}, 1) // some command has
	var sleeper sync.WaitGroup
	sleeps := 0
	sleeper.Go(func() {
		for range ended {
			if _, err := w.Sandboxes().Sleep(w.ctx, "a", true); err != nil {
				t.Errorf("Sleep: %v", err)
			}
			sleeps++
			// Who waits for a command uses nothing.
			if _, err := w.Sandboxes().Wake(w.ctx, "a"); err != nil {
				t.Errorf("Wake: %v", err)
			}
		}
	})
	var users sync.WaitGroup
	for i := range 4 {
		users.Go(func() {
			for n := range 4 {
				spec := sandbox.ExecSpec{Shell: fmt.Sprintf("echo %d-%d", i, n)}
				if i%2 == 0 {
					spec.Session = fmt.Sprint("s", i)
				}
				r, err := w.Execs().Run(w.ctx, "a", spec, -1, live.OutputCaps{Stdout: -1})
				// A sandbox that is put to sleep again and again may not be reached.
				for errors.Is(err, errs.Unavailable) && r.Exec.Seq == 0 {
					r, err = w.Execs().Run(w.ctx, "a", spec, -1, live.OutputCaps{Stdout: -1})
				}
				if want := fmt.Sprintf("%d-%d\n", i, n); err != nil || string(r.Stdout) != want {
					t.Errorf("%q printed %q and ended %+v, %v", spec.Shell, r.Stdout, r.Exec.Exit, err)
				}
				select {
				case ended <- struct{}{}:
				default:
				}
			}
		})
	}
	users.Wait()
	close(ended)
	sleeper.Wait()
	if sleeps == 0 {
		t.Error("it never slept")
	}
}

// Where memory cannot be kept a sleep is a stop, which says so and from which a use
// starts again.
func TestStopInsteadOfASleep(t *testing.T) {
	for kind, says := range map[errs.Kind]string{errs.Unsupported: "this host cannot keep", errs.Exhausted: "no room"} {
		w := newWorld(t)
		w.create("a")
		x := w.launch("a", "trap 'echo bye; exit' TERM; echo ready; while :; do sleep 0.01; done")
		w.faults.SetFail("Sleep", errs.E(kind, "it cannot"))
		b, err := w.Sandboxes().Sleep(w.ctx, "a", true)
		if err != nil || b.State != sandbox.Stopped || b.Cause != sandbox.CauseSleep || !strings.Contains(b.Reason, says) {
			t.Errorf("%s: Sleep = %s, %s, %q, %v", kind, b.State, b.Cause, b.Reason, err)
		}
		if p := w.payload("a", event.SandboxStopped); !strings.Contains(p.(event.Stopped).Reason, says) {
			t.Errorf("%s: the event says %+v", kind, p)
		}
		if r, err := w.Execs().Result(w.ctx, "a", x.Seq, live.OutputCaps{Stdout: -1}); err != nil || !r.Exec.Status.Finished() || !strings.Contains(string(r.Stdout), "bye") {
			t.Errorf("%s: the command ended %+v with %q, %v", kind, r.Exec.Exit, r.Stdout, err)
		}
		w.sh("a", "true")
		if b := w.get("a"); b.State != sandbox.Running || b.Reason != "" {
			t.Errorf("%s: after a use it is %s, %q", kind, b.State, b.Reason)
		}
	}
}

func TestAutoWake(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		auto        sandbox.AutoWake
		sleep, stop bool // whether a use runs it again
	}{
		{"", true, false}, {sandbox.AutoWakeIdle, true, false}, {sandbox.AutoWakeAlways, true, true}, {sandbox.AutoWakeNever, false, false},
	} {
		id := "box-" + string(tt.auto)
		id = strings.TrimSuffix(id, "-")
		if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: id, Spec: sandbox.Spec{AutoWake: tt.auto}}); err != nil {
			t.Fatal(err)
		}
		used := func(what string, want bool) {
			t.Helper()
			_, err := w.Execs().Run(w.ctx, id, sandbox.ExecSpec{Shell: "true"}, -1, live.OutputCaps{})
			if want && err != nil || !want && !errors.Is(err, errs.WrongState) {
				t.Errorf("%q: a use of one that %s: %v", tt.auto, what, err)
			}
			if info := errs.Public(errors.Join(err, nil)); !want && info.Hint == "" {
				t.Errorf("%q: %+v, want a hint", tt.auto, info)
			}
		}
		w.sleep(id, false)
		used("sleeps", tt.sleep)
		if _, err := w.Sandboxes().Start(w.ctx, id); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Sandboxes().Stop(w.ctx, id, 0); err != nil {
			t.Fatal(err)
		}
		// The files of a stopped one are there for everybody.
		if _, err := w.Files().Stat(w.ctx, id, ".", true); err != nil {
			t.Errorf("%q: a file of a stopped one: %v", tt.auto, err)
		}
		used("was stopped", tt.stop)
	}
	always := sandbox.AutoWakeAlways
	if b, err := w.Sandboxes().Update(w.ctx, "box-never", lifecycle.Patch{AutoWake: &always}); err != nil || b.Spec.AutoWake != always {
		t.Errorf("Update = %q, %v", b.Spec.AutoWake, err)
	}
	w.sh("box-never", "true")
}

// A memory that is lost is a cold start from the files, which says so.
func TestMemoryThatIsLost(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	x := w.launch("a", "echo kept > file; echo ready; sleep 1000")
	w.sleep("a", true)
	w.faults.SetFail("Wake", errs.E(errs.NotFound, "the memory is damaged"))
	if r := w.sh("a", "cat file"); string(r.Stdout) != "kept\n" {
		t.Errorf("the file has %q", r.Stdout)
	}
	now := w.get("a")
	if now.State != sandbox.Running || now.Cause != sandbox.CauseMemoryLost || !strings.Contains(now.Reason, "lost") {
		t.Errorf("it is %s, %s, %q", now.State, now.Cause, now.Reason)
	}
	if x := w.wait("a", x.Seq); x.Exit.Reason != sandbox.EndLost || x.Exit.Message != now.Reason {
		t.Errorf("the command ended %+v", x.Exit)
	}
	if p, ok := w.payload("a", event.SandboxWoken).(event.Woken); !ok || !p.RestoreIncomplete || p.Reason != now.Reason {
		t.Errorf("the event says %+v", p)
	}
	w.faults.SetFail("Wake", nil)
	w.sleep("a", false)
	if b, err := w.Sandboxes().Wake(w.ctx, "a"); err != nil || b.Reason != "" || b.Cause != sandbox.CauseNone {
		t.Errorf("after the next wake it is %q, %q, %v", b.Cause, b.Reason, err)
	}
	// Somebody has removed the memory of one that sleeps, and the daemon restarts.
	w.sleep("a", false)
	w.stop()
	w.driverOfNext()
	if err := w.fake.Stop(w.ctx, b.Handle, 0); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.start()
	if now = w.get("a"); now.State != sandbox.Stopped || now.Cause != sandbox.CauseMemoryLost {
		t.Errorf("after the restart it is %s, %s", now.State, now.Cause)
	}
	w.sh("a", "true")
	if p, ok := w.payload("a", event.SandboxWoken).(event.Woken); !ok || !p.RestoreIncomplete {
		t.Errorf("the event says %+v", p)
	}
}

// A sleeper has an end as others have.
func TestSleeperEnds(t *testing.T) {
	c := &clock{now: time.Now()}
	w := newWorld(t, func(cfg *core.Config) { cfg.Now = c.Now })
	life := 24 * time.Hour
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a", MaxLifetime: &life}); err != nil {
		t.Fatal(err)
	}
	w.sleep("a", false)
	c.add(23 * time.Hour)
	w.Reap()
	if s := w.get("a").State; s != sandbox.Sleeping {
		t.Errorf("it is %s", s)
	}
	c.add(2 * time.Hour)
	w.until("its time is over", func() bool {
		w.Reap()
		_, err := w.Sandboxes().Get(w.ctx, "a")
		return errors.Is(err, errs.NotFound)
	})
	w.nothingLeft()
}

// A sleeper survives daemons, with all that it sleeps with.
func TestSleeperSurvivesDaemons(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	hold, open := gate(t)
	x := w.launch("a", "echo ready; "+hold+"; echo done")
	w.queue("a", sandbox.ExecSpec{Shell: hold + "; echo first >> log"})
	last := w.queue("a", sandbox.ExecSpec{Shell: "echo last >> log"})
	secret := w.queue("a", sandbox.ExecSpec{Shell: "true", Secrets: map[string]string{"A": "b"}})
	w.sleep("a", true)
	for range 2 {
		w.restart()
		if s := w.get("a").State; s != sandbox.Sleeping {
			t.Fatalf("it is %s", s)
		}
	}
	open()
	w.sh("a", "true")
	w.wait("a", x.Seq)
	w.wait("a", last.Seq)
	if r := w.sh("a", "cat log"); string(r.Stdout) != "first\nlast\n" {
		t.Errorf("the queue left %q", r.Stdout)
	}
	if r, err := w.Execs().Result(w.ctx, "a", x.Seq, live.OutputCaps{Stdout: -1}); err != nil || string(r.Stdout) != "ready\ndone\n" {
		t.Errorf("it printed %q, %v", r.Stdout, err)
	}
	if x := w.wait("a", secret.Seq); x.Exit.Reason != sandbox.EndLost {
		t.Errorf("one whose secrets were in memory only ended %+v", x.Exit)
	}
	if got := w.happened("a"); slices.Contains(got, event.SandboxAdopted) {
		t.Errorf("it happened %v", got)
	}
}

// The time limits of commands do not count the sleep.
func TestTimeLimitsStandStill(t *testing.T) {
	c := &clock{now: time.Now()}
	w := newWorld(t, func(cfg *core.Config) { cfg.Now = c.Now })
	w.create("a")
	hold, open := gate(t)
	limit := time.Hour
	x, err := w.Execs().Start(w.ctx, "a", sandbox.ExecSpec{Shell: "echo ready; " + hold, Timeout: &limit})
	if err != nil {
		t.Fatal(err)
	}
	w.until("it runs", func() bool {
		x, err := w.Execs().Get(w.ctx, "a", x.Seq)
		return err == nil && x.Status == sandbox.ExecRunning
	})
	w.sleep("a", true)
	c.add(1000 * time.Hour)
	if _, err := w.Sandboxes().Wake(w.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	w.restart() // the next daemon does not count it either
	w.sh("a", "true")
	open()
	if x := w.wait("a", x.Seq); x.Exit.Reason != sandbox.EndExited {
		t.Errorf("it ended %+v", x.Exit)
	}
}
