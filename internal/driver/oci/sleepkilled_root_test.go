//go:build root

package oci

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver"
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
		r.do(when+": Adopt", r.d.Adopt(r.ctx, r.h))
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
	for _, path := range []string{b.path("memory"), b.path("memory.new"), b.path("memory.used")} {
		if _, err := os.Lstat(path); err == nil {
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

// The runtime that is killed in the middle of its part of a sleep or a wake
// leaves a sandbox that runs, or one that sleeps.
func TestRuntimeKilledInSleepAndWake(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	r.counts()
	count := 0
	for _, tt := range []struct{ act, command string }{
		{"sleep", "fscheckpoint"}, {"sleep", "checkpoint"}, {"wake", "restore"}, {"wake", "boot"},
	} {
		for attempt := 1; ; attempt++ {
			killed, err := r.killIn(tt.act, tt.command)
			count++
			r.goesOn(tt.command+" that was killed", count)
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

// killCommand kills a command of the runtime, if it runs.
func killCommand(t *testing.T, uid sandbox.UID, command string) (killed bool) {
	for _, text := range processesOf(t, uid) {
		data, err := os.ReadFile("/proc/" + text + "/cmdline")
		if err != nil || !slices.Contains(strings.Split(string(data), "\x00"), command) {
			continue
		}
		pid, err := strconv.Atoi(text)
		if err == nil && unix.Kill(pid, unix.SIGKILL) == nil {
			killed = true
		}
	}
	return killed
}
