//go:build root

package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// restored is a sandbox that began from a snapshot, and who is nobody else yet.
func (r *running) restored(name sandbox.UID, files string) *running {
	r.t.Helper()
	spec := r.cloneSpec(files)
	r.t.Cleanup(func() {
		if err := r.d.Sweep(context.Background(), spec.UID); err != nil {
			r.t.Errorf("Sweep: %v", err)
		}
	})
	h, err := r.d.Restore(r.ctx, name, spec)
	r.do("Restore", err)
	return r.clone(spec, h)
}

// Clones know nothing of the parent's commands, are reached by secrets of their
// own, and the kernels of all draw different random numbers. Programs do not, which
// is said.
func TestClonesAreOthers(t *testing.T) {
	r := start(t, runsc, pythonSpec(t))
	g := r.guest(t)
	// Generators in variables drew alike, and no warning said so.
	const seeds = `import random, ssl, os, numpy
random.seed(1); numpy.random.seed(1)
class Own(random.Random):
    def seed(self, *given): super().seed(os.getpid())
mine, held = Own(), {"a": [random.Random(1)]}
rng, old = numpy.random.default_rng(1), numpy.random.RandomState(1)
philox, odd = numpy.random.Generator(numpy.random.Philox(1)), numpy.random.RandomState(numpy.random.SFC64(1))
_ = old.randn(), odd.randn(), held["a"][0].gauss(0, 1)`
	const draws = "random.random(), numpy.random.random(), ssl.RAND_bytes(8).hex(), mine.random(), held['a'][0].gauss(0, 1), held['a'][0].random(), " +
		"rng.random(), rng.spawn(1)[0].random(), old.randn(), old.rand(), philox.random(), odd.randn()"
	for _, spec := range []sandbox.ExecSpec{cellOf("python", "python", seeds+"\nx = 20; "+draws), cellOf("node", "node", "let x = 20"), cellOf("busy", "python", strings.ReplaceAll(seeds, "(1)", "(2)")+"\n"+draws)} {
		if got := g.run(spec); *got.exit.Code != 0 {
			t.Fatalf("%s: %q", spec.Cell.Code, got.rich)
		}
	}
	const rest = "until [ -e /tmp/go ]; do sleep 0.05; done"
	limit := 20 * time.Second
	command, printed := g.begin(sandbox.ExecSpec{Shell: "echo on; " + rest + "; echo off; touch /tmp/done", Timeout: &limit}, "on\n")
	g.begin(sandbox.ExecSpec{Argv: []string{"python3", "-u", "-c", `
import os, ssl, time
ssl.RAND_bytes(8)
print("on")
while not os.path.exists("/tmp/go"): time.sleep(0.05)
open("/tmp/drawn", "w").write(ssl.RAND_bytes(8).hex())
time.sleep(1000)
`}}, "on\n")
	cell, cellPrinted := g.begin(cellOf("busy", "", "import time\nprint('on', flush=True)\nwhile not os.path.exists('/tmp/go'): time.sleep(0.05)\nprint('off'); y = 1"), "on\n")

	g.begin(sandbox.ExecSpec{Shell: "echo on; " + rest + "; touch /tmp/session", Session: "main"}, "on\n")

	name, files := r.keeps()
	family := []*running{r}
	boots := map[string]bool{g.boot(): true}
	drawn := map[string]string{}
	for i := range 2 {
		who := fmt.Sprintf("clone-%d", i)
		c := r.restored(name, files)
		before, _, err := c.d.box(c.spec.UID).record()
		c.do("record", err)
		is, err := c.d.Identify(c.ctx, c.h, driver.Identity{ID: who, Env: append(slices.Clone(r.spec.Identity.Env), "WHOSE="+who)})
		c.do("Identify", err)
		c.h = is.Handle
		family = append(family, c)
		said := strings.Join(is.Warnings, "\n")
		for _, want := range []string{`the kernel "node" was ended`, `the kernel "busy" runs a cell`, "python3 (pid ", "as they were before it: main"} {
			if !strings.Contains(said, want) {
				t.Errorf("%s: the warnings do not say %q: %s", who, want, said)
			}
		}
		if strings.Contains(said, `kernel "python"`) {
			t.Errorf("%s: it is warned of a kernel with a fresh seed: %s", who, said)
		}
		after, _, err := c.d.box(c.spec.UID).record()
		if err != nil || after.Secret == before.Secret || after.Secret != before.NextSecret || after.NextSecret != "" {
			t.Errorf("%s: its secret is not one of its own: %v", who, err)
		}
		gc := c.guest(t)
		if boot := gc.boot(); boots[boot] {
			t.Errorf("%s: its boot id %s is another's too", who, boot)
		} else {
			boots[boot] = true
		}
		if execs, err := gc.List(gc.ctx); err != nil || len(execs) != 0 {
			t.Errorf("%s: it has %d commands of its parent, %v", who, len(execs), err)
		}
		s, err := gc.Exec(gc.ctx, command, nil, 0)
		if err == nil {
			_, err = s.Next()
			_ = s.Close()
		}
		if !errors.Is(err, errs.NotFound) {
			t.Errorf("%s: attach to its parent's command: %v, want not found", who, err)
		}
		for code, want := range map[string]string{
			"os.environ['WHOSE'], x":                          "('" + who + "', 20)",
			"import socket; socket.gethostname()":             "'" + who + "'",
			"import subprocess as s; s.getoutput('hostname')": "'" + who + "'",
		} {
			if got := gc.value("python", "", code); got != want {
				t.Errorf("%s: %s is %s, want %s", who, code, got, want)
			}
		}
		if got := gc.value("node", "node", "process.env.WHOSE + typeof x"); got != who+"undefined" && !strings.HasPrefix(got, "restarted: the sandbox was copied") {
			t.Errorf("%s: node says %q", who, got)
		}
	}
	// The agent of a clone comes back to a later daemon, by its secret.
	r.d = r.m.open(t)
	for i, c := range family {
		c.d = r.d
		c.do("Adopt", c.d.Adopt(c.ctx, c.h))
		who, gc := fmt.Sprintf("member %d", i), c.guest(t)
		all := "[ -e /tmp/done ] && [ -s /tmp/drawn ]"
		if i == 0 { // the clones have no command of a session
			all += " && [ -e /tmp/session ]"
		}
		gc.run(sandbox.ExecSpec{Shell: "touch /tmp/go; until " + all + "; do sleep 0.05; done"})
		if there := gc.run(sandbox.ExecSpec{Session: "main", Shell: "ls /tmp"}); i > 0 && strings.Contains(string(there.stdout), "session") {
			t.Errorf("%s: the command of the parent's session went on", who)
		}
		for _, draw := range []string{gc.value("python", "", draws), gc.value("busy", "", draws)} {
			for _, number := range strings.FieldsFunc(draw, func(r rune) bool { return strings.ContainsRune("(), \n", r) }) {
				if other := drawn[number]; other != "" || len(number) < 8 {
					t.Errorf("%s and %q draw %s", who, other, number)
				}
				drawn[number] = who
			}
		}
		if got := gc.value("busy", "", "y"); got != "1" {
			t.Errorf("%s: the cell that ran has not ended: %s", who, got)
		}
		program := string(gc.run(sandbox.ExecSpec{Shell: "cat /tmp/drawn"}).stdout)
		if first, ok := drawn["program"]; ok && first != program {
			t.Errorf("%s: the program draws %s, and another's %s: is a clone a copy?", who, program, first)
		}
		drawn["program"] = program
	}
	g = r.guest(t)
	if got := g.end(command, printed); string(got.stdout) != "on\noff\n" || got.exit.Reason != sandbox.EndExited {
		t.Errorf("the parent's command: %q, %+v", got.stdout, got.exit)
	}
	if got := g.end(cell, cellPrinted); !bytes.Equal(got.stdout, []byte("on\noff\n")) || got.exit.Reason != sandbox.EndExited {
		t.Errorf("the parent's cell: %q, %+v", got.stdout, got.exit)
	}
}

// A daemon that was killed in a sleep left time limits that stand still; who takes
// the sandbox over lets them go on.
func TestAdoptResumesTimers(t *testing.T) {
	r := start(t, runsc, testSpec(t, sandbox.GVisor))
	r.standStill(true)
	r.d = r.m.open(t)
	r.goesOnInTime()
}

// A sleep that failed left a run that nobody reaches, and whose time limits stand still,
// where the daemon was out of descriptors for instance. The same daemon takes it up again.
func TestAdoptTakesUpWhatAFailedSleepLeft(t *testing.T) {
	for name, sleeping := range map[string]bool{"that went on": false, "that may be paused": true} {
		t.Run(name, func(t *testing.T) {
			r := start(t, runsc, testSpec(t, sandbox.GVisor))
			r.standStill(sleeping)
			r.goesOnInTime()
		})
	}
}

// standStill is what comes before a pause, and how far the notes say that this came.
func (r *running) standStill(sleeping bool) {
	r.t.Helper()
	run, err := r.d.held(r.h)
	r.do("held", err)
	b := r.d.box(r.spec.UID)
	rec, _, err := b.record()
	r.do("record", err)
	rec.Sleeping, rec.Paused = sleeping, true
	r.do("setRecord", b.setRecord(rec))
	r.do("pause", r.d.beforeCheckpoint(r.ctx, run))
}

// goesOnInTime adopts the sandbox, whose time limits hold then.
func (r *running) goesOnInTime() {
	r.t.Helper()
	r.do("Adopt", r.d.Adopt(r.ctx, r.h))
	limit := 100 * time.Millisecond
	if got := r.guest(r.t).run(sandbox.ExecSpec{Shell: "sleep 1000", Timeout: &limit}); got.exit.Reason != sandbox.EndTimeout {
		r.t.Errorf("a command beyond its limit: %+v", got.exit)
	}
	if rec, _, err := r.d.box(r.spec.UID).record(); err != nil || rec.Sleeping || rec.Paused {
		r.t.Errorf("the notes say %+v, %v", rec, err)
	}
}
