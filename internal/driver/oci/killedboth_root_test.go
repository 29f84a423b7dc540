//go:build root

package oci

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/poll"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// As when the host's memory killer takes both, or somebody who ends all that is
// called cubby: the daemon and what it has the runtime do end at one moment, so that
// neither finishes nor undoes what the other began.

const bothSteps = 8

// accident is what kills a daemon together with commands of the runtime. It counts the
// times at which there was one to kill.
type accident struct {
	*running
	commands []string
	hits     int
	// sights: it strikes when there is such a command. How long a host takes to begin one
	// is not known.
	sights bool
}

// seen reports whether one of the commands runs for a sandbox.
func (a *accident) seen(uid sandbox.UID) bool {
	return slices.ContainsFunc(processesOf(a.t, uid), func(pid string) bool {
		data, err := os.ReadFile("/proc/" + pid + "/cmdline")
		return err == nil && slices.ContainsFunc(strings.Split(string(data), "\x00"), func(arg string) bool { return slices.Contains(a.commands, arg) })
	})
}

// strikes has a victim killed some time after it began, and its successor opened.
func (a *accident) strikes(v victim, uid sandbox.UID, after time.Duration) (reached string) {
	a.t.Helper()
	v.Config = a.m.cfg
	v.Config.Log = nil
	if err := a.d.Close(); err != nil {
		a.t.Fatal(err)
	}
	hit := false
	reached, _ = murderBy(a.t, v, after, func(daemon *os.Process) {
		if a.sights {
			ctx, cancel := context.WithTimeout(a.t.Context(), 5*time.Second)
			defer cancel()
			_ = poll.Until(ctx, time.Millisecond, time.Millisecond, func() (bool, error) { return a.seen(uid), nil }) // or it is over
		}
		_ = daemon.Signal(unix.SIGSTOP) // from here on it begins nothing, and answers no end
		for _, command := range a.commands {
			hit = killCommand(a.t, uid, command) || hit
		}
		_ = daemon.Kill()
	})
	if hit {
		a.hits++
	}
	a.t.Logf("after %v: it had said %.10q, and of the runtime there was something to kill: %v", after, reached, hit)
	a.d = a.m.open(a.t)
	return reached
}

// happened fails unless the runtime was killed at all.
func (a *accident) happened() {
	a.t.Helper()
	if a.hits == 0 {
		a.t.Error("the runtime was never killed")
	}
}

// moment is when in an act a step strikes: closer together at its beginning, where a
// fast host does all of it.
func moment(step int) time.Duration {
	return 320 * time.Millisecond * time.Duration(step*step) / (bothSteps * bothSteps)
}

// remembers writes a number onto the disk and the root filesystem of a sandbox.
func (r *running) remembers(n int) {
	r.t.Helper()
	r.exec("root", "echo "+itoa(n)+" > /workspace/moment; echo "+itoa(n)+" > /etc/moment")
}

// has fails unless the files are those of the moment.
func (r *running) has(when string, n int) {
	r.t.Helper()
	if out, _ := r.exec("root", "cat /workspace/moment /etc/moment"); out != itoa(n)+"\n"+itoa(n)+"\n" {
		r.t.Errorf("%s: its files say %q, want twice %d", when, out, n)
	}
}

// beginsIfDead starts a sandbox again whose processes are gone, and says so.
func (r *running) beginsIfDead(when string) bool {
	r.t.Helper()
	status, err := r.d.Inspect(r.ctx, r.h)
	r.do(when+": Inspect", err)
	if status.Phase != driver.PhaseDead && status.Phase != driver.PhaseCreated {
		return false
	}
	r.t.Logf("%s it was %s", when, status.Phase)
	for _, pid := range processesOf(r.t, r.spec.UID) {
		r.t.Errorf("%s: it is %s, and its process %s lives", when, status.Phase, pid)
	}
	r.do(when+": Start", r.d.Start(r.ctx, r.h))
	return true
}

// A daemon and a runtime that are killed at one moment of a sleep leave a sandbox that
// runs, or one that sleeps.
func TestDaemonAndRuntimeKilledInSleep(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	r.counts()
	a := accident{running: r, commands: []string{"suspend"}}
	for step := range bothSteps {
		when := "sleep that was killed at step " + itoa(step)
		a.sights = step == bothSteps-1
		r.remembers(step)
		a.strikes(victim{Handle: r.h, Sleep: true}, r.spec.UID, moment(step))
		r.goesOn(when, step+1)
		r.has(when, step)
	}
	a.happened()
}

// In a wake they leave one that runs, or one that sleeps; or, if its kernel was killed
// too after it had come out of the memory, one that begins with the files with which it
// fell asleep.
func TestDaemonAndRuntimeKilledInWake(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	r.counts()
	a := accident{running: r}
	count, began := 0, false
	for step := range bothSteps + 1 {
		when := "wake that was killed at step " + itoa(step)
		r.remembers(step)
		r.do("Sleep", r.d.Sleep(r.ctx, r.h))
		a.commands = []string{"wake"}
		if step%2 == 0 {
			a.commands = []string{"wake", "boot", "gofer"}
		}
		after := moment(step)
		if step == bothSteps {
			after = startLimit // as soon as it says that it woke it
		}
		a.strikes(victim{Handle: r.h, Wake: true, Stay: true}, r.spec.UID, after)
		if began = r.beginsIfDead(when); began {
			if len(a.commands) == 1 {
				t.Errorf("%s: its kernel died with the runtime's command", when)
			}
			r.counts()
			count = 0
		}
		count++
		r.goesOn(when, count)
		r.has(when, step)
	}
	if !began {
		t.Error("a sandbox whose kernel was killed after its wake did not begin anew")
	}
	a.happened()
}

// In a snapshot they leave a sandbox that runs, and a snapshot that is whole or none.
func TestDaemonAndRuntimeKilledInSnapshot(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	r.counts()
	a := accident{running: r, commands: []string{"suspend"}}
	for step := range bothSteps {
		when := "snapshot that was killed at step " + itoa(step)
		r.remembers(step)
		name, files := sandbox.NewUID(), t.TempDir()
		for _, volume := range r.spec.Volumes { // it may not come so far
			r.do("Mkdir", os.Mkdir(filepath.Join(files, string(volume.Role)), 0o755))
		}
		v := victim{Spec: r.spec, Handle: r.h, Snapshot: name, Files: files}
		a.sights = step >= bothSteps-2
		reached := a.strikes(v, r.spec.UID, moment(step%(bothSteps-2)))
		r.goesOn(when, step+1)
		r.has(when, step)
		spec := r.cloneSpec(files)
		h, err := r.d.Restore(r.ctx, name, spec)
		switch {
		case err == nil:
			c := r.clone(spec, h)
			c.goesOn(when+" and restored", step+1)
			c.has(when+" and restored", step)
			r.do("Destroy", r.d.Destroy(r.ctx, h))
		case !errors.Is(err, errs.NotFound) || reached == "kept":
			t.Errorf("%s: Restore = %v", when, err)
		}
		r.do("RemoveSnapshot", r.d.RemoveSnapshot(r.ctx, name))
		if left, err := r.d.Snapshots(r.ctx); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", when, left, err)
		}
	}
	a.happened()
}

// In a restore they leave what a sweep removes whole, the snapshot as it was, and the
// sandbox that it is of as it runs.
func TestDaemonAndRuntimeKilledInRestore(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	r.counts()
	r.remembers(7)
	name, files := r.keeps()
	a := accident{running: r}
	for step := range bothSteps {
		when := "restore that was killed at step " + itoa(step)
		spec := r.cloneSpec(files)
		a.commands = []string{"wake"}
		if step%2 == 0 {
			a.commands = []string{"wake", "boot", "gofer"}
		}
		reached := a.strikes(victim{Spec: spec, Snapshot: name, Restore: true}, spec.UID, moment(step))
		r.do("Adopt", r.d.Adopt(r.ctx, r.h))
		if h, ok := strings.CutPrefix(reached, "restored "); ok {
			c := r.clone(spec, driver.Handle(h))
			if !c.beginsIfDead(when) {
				c.goesOn(when, 1)
			}
			c.has(when, 7)
		}
		r.do("Sweep", r.d.Sweep(r.ctx, spec.UID))
		for _, pid := range processesOf(t, spec.UID) {
			t.Errorf("%s: process %s is left", when, pid)
		}
		if found, err := r.d.List(r.ctx); err != nil || len(found) != 1 || found[0].UID != r.spec.UID {
			t.Errorf("%s: there are %+v, %v, want the parent alone", when, found, err)
		}
		h, err := r.d.Restore(r.ctx, name, spec)
		r.do("Restore once more", err)
		c := r.clone(spec, h)
		c.goesOn(when+" and again", 1)
		c.has(when+" and again", 7)
		r.do("Destroy", r.d.Destroy(r.ctx, h))
	}
	r.goesOn("the parent", 1)
	a.happened()
}
