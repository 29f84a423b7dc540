//go:build root

package oci

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/oci/pidfd"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/poll"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// counts starts a command that counts in its memory how often it is asked.
func (r *running) counts() {
	r.t.Helper()
	r.exec("sandbox", `setsid sh -c 'n=0; while :; do if [ -e ask ]; then n=$((n+1)); rm ask; echo $n > new; mv new answer; fi; sleep 0.02; done' </dev/null >/dev/null 2>&1 &`)
}

// goesOn carries on after a crash, whatever it left, and proves that nothing of
// what ran is lost.
func (r *running) goesOn(when string, count int) {
	r.t.Helper()
	status, err := r.d.Inspect(r.ctx, r.h)
	r.do(when+": Inspect", err)
	switch status.Phase {
	case driver.PhaseRunning:
		err := r.d.Adopt(r.ctx, r.h)
		if errors.Is(err, errs.WrongState) { // nobody was left to bring it out of its memory
			err = r.d.Wake(r.ctx, r.h)
		}
		r.do(when+": Adopt", err)
	case driver.PhaseAsleep:
		r.do(when+": Wake", r.d.Wake(r.ctx, r.h))
	default:
		r.t.Fatalf("%s: it is %+v", when, status)
	}
	r.t.Logf("%s it was %s", when, status.Phase)
	if out, _ := r.exec("sandbox", "rm -f answer; touch ask; while [ ! -e answer ]; do sleep 0.02; done; cat answer"); strings.TrimSpace(out) != itoa(count) {
		r.t.Fatalf("%s: the counter said %q, want %d", when, out, count)
	}
	b := r.d.box(r.spec.UID)
	for _, path := range []string{b.path("memory"), b.path("memory.new"), b.path("memory.used"), b.halfSaved()} {
		gone := func() (bool, error) { _, err := os.Lstat(path); return err != nil, nil }
		if filepath.Base(path) == "memory.used" { // which goes while others go on
			r.do("Until", poll.Until(r.ctx, time.Millisecond, 10*time.Millisecond, gone))
		}
		if gone, _ := gone(); !gone {
			r.t.Errorf("%s: %s is left", when, filepath.Base(path))
		}
	}
}

// A daemon that is killed at any moment of a sleep or a wake leaves a sandbox
// that runs, or one that sleeps.
func TestKilledInSleepAndWake(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	r.counts()
	const steps = 24
	for step := range steps {
		v := victim{Config: r.m.cfg, Handle: r.h, Sleep: step%2 == 0, Wake: step%2 == 1}
		v.Config.Log = nil
		act := "sleep"
		if v.Wake {
			act = "wake"
			r.do("Sleep", r.d.Sleep(r.ctx, r.h))
		}
		if err := r.d.Close(); err != nil {
			t.Fatal(err)
		}
		after := 500 * time.Millisecond * time.Duration(step/2) / (steps / 2)
		murder(t, v, after)
		r.d = r.m.open(t)
		r.goesOn(act+" that was killed after "+after.String(), step+1)
	}
}

// A daemon that is killed before it has noted a sleep has begun to write none: what
// it made room with went on lying there until the next sleep.
func TestKilledBeforeASleepIsNoted(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	r.counts()
	b := r.d.box(r.spec.UID)
	for _, dir := range []string{b.memory().HalfImage(), b.halfSaved()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.d.Close(); err != nil {
		t.Fatal(err)
	}
	r.d = r.m.open(t)
	r.goesOn("before it was noted", 1)
}

// The runtime that is killed in the middle of its part of a sleep or a wake
// leaves a sandbox that runs, or one that sleeps.
func TestRuntimeKilledInSleepAndWake(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	r.counts()
	count := 0
	for _, tt := range []struct{ act, command string }{{"sleep", "suspend"}, {"wake", "wake"}, {"wake", "boot"}} {
		for attempt := 1; ; attempt++ {
			killed, err := r.killIn(tt.act, tt.command)
			status, inspected := r.d.Inspect(r.ctx, r.h)
			r.do("Inspect", inspected)
			if killed && err == nil && tt.command == "boot" && status.Phase == driver.PhaseDead {
				// The wake was over: what was killed is a sandbox that ran.
				r.do("Start", r.d.Start(r.ctx, r.h))
				r.counts()
				count = 0
			} else {
				count++
				r.goesOn(tt.command+" that was killed", count)
			}
			if killed && err != nil {
				break
			}
			// It came and went unseen, or had done its part.
			if attempt == 30 {
				t.Fatalf("%s: %s was never killed in time", tt.act, tt.command)
			}
		}
	}
}

// It does not matter how far the runtime had come with a suspend: before the pause,
// in it, in the middle of the image, or before the end of the pause.
func TestSuspendKilledAtAnyMoment(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	r.counts()
	const steps = 16
	failed := 0
	for step := range steps {
		name := sandbox.NewUID()
		act := func() error { return r.d.Sleep(r.ctx, r.h) }
		if step%2 == 1 {
			act = func() error {
				_, err := r.d.Snapshot(r.ctx, r.h, name, func(context.Context) error { time.Sleep(20 * time.Millisecond); return nil })
				return err
			}
		}
		done := make(chan error, 1)
		go func() { done <- act() }()
		after := 150 * time.Millisecond * time.Duration(step) / steps
		time.Sleep(after)
		killed := killCommand(t, r.spec.UID, "suspend")
		err := <-done
		if err != nil {
			failed++
		}
		t.Logf("after %v: killed %v: %.200v", after, killed, err)
		r.goesOn("suspend that was killed after "+after.String(), step+1)
		r.do("RemoveSnapshot", r.d.RemoveSnapshot(r.ctx, name))
	}
	if failed == 0 {
		t.Error("nothing was killed in time")
	}
}

// command is one of the runtime's own, to its end.
func (d *Driver) command(ctx context.Context, n note, p *pidfd.Process, command string, flags ...string) error {
	cmd, lock, err := d.runsc(ctx, n, p.Program(), command, flags...)
	if err != nil {
		return err
	}
	defer lock.Close()
	return cmd.Run()
}

// A daemon that was killed marked a run that it was about to pause, and nobody knows
// whether that is paused: its kernel does, and the runtime's notes do not.
func TestPausedWithoutANote(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	r.counts()
	for step, paused := range []bool{true, false, true, false} {
		if step == 2 { // of a kernel that was restored, too
			r.do("Sleep", r.d.Sleep(r.ctx, r.h))
			r.do("Wake", r.d.Wake(r.ctx, r.h))
		}
		n, held, b, rec := r.parts()
		if err := held.line().Sever(); err != nil {
			t.Fatal(err)
		}
		rec.Sleeping = true
		r.do("mark", b.setRecord(rec))
		if paused {
			// The runtime's own command, whose note is then put back.
			notes, err := filepath.Glob(filepath.Join(b.runtime(), "*.state"))
			if err != nil || len(notes) != 1 {
				t.Fatalf("the runtime's notes: %v, %v", notes, err)
			}
			before := mustRead(t, notes[0])
			r.do("pause", r.d.command(r.ctx, n, held.process, "pause"))
			r.do("put back", os.WriteFile(notes[0], before, 0o600))
		}
		r.d = r.m.open(t)
		r.goesOn("a pause that nobody noted", step+1)
	}
}

// killIn sleeps or wakes while a command of the runtime is killed whenever it is
// seen.
func (r *running) killIn(what, command string) (killed bool, err error) {
	r.t.Helper()
	act := r.d.Sleep
	if what == "wake" {
		r.do("Sleep", r.d.Sleep(r.ctx, r.h))
		act = r.d.Wake
	}
	return r.killDuring(r.spec.UID, command, func() error { return act(r.ctx, r.h) })
}

// killDuring does an act while a command of a sandbox's runtime is killed whenever
// it is seen.
func (r *running) killDuring(uid sandbox.UID, command string, act func() error) (killed bool, err error) {
	r.t.Helper()
	r.d.GiveUp() // what is ready does without the command
	done := make(chan error, 1)
	go func() { done <- act() }()
	for {
		select {
		case err := <-done:
			return killed, err
		default:
			killed = killCommand(r.t, uid, command) || killed
		}
	}
}

// killCommand kills a command of the runtime, if it runs, and waits for its end.
func killCommand(t *testing.T, uid sandbox.UID, command string) (killed bool) {
	for _, text := range processesOf(t, uid) {
		data, err := os.ReadFile("/proc/" + text + "/cmdline")
		if err != nil || !slices.Contains(strings.Split(string(data), "\x00"), command) {
			continue
		}
		pid, err := strconv.Atoi(text)
		if err != nil {
			continue
		}
		p, err := pidfd.Open(pid, 0)
		if err != nil {
			continue
		}
		p.Kill()
		killed = p.Wait() == nil || killed
		p.Close()
	}
	return killed
}
