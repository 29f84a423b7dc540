//go:build root

package oci

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/capability"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/agent"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// A stop that failed after the agent had ended everything leaves a run that answers
// and takes no commands any more. A start ends it first, with its system files, and
// begins another.
func TestStartAfterAStopThatWasCutOff(t *testing.T) {
	for _, w := range walls {
		for name, restarted := range map[string]bool{"of this daemon": false, "of an earlier daemon": true} {
			t.Run(w.runtime+" "+name, func(t *testing.T) {
				r := start(t, w.runtime, testSpec(t, w.isolation))
				r.exec("root", "echo kept > /etc/kept")
				r.cutStopOff()
				if restarted {
					r.d = r.m.open(t)
				}
				r.phase(driver.PhaseCreated)
				r.do("Start", r.d.Start(r.ctx, r.h))
				r.phase(driver.PhaseRunning)
				if out, exit := r.exec("root", "cat /etc/kept"); out != "kept\n" || exit.GetCode() != 0 {
					t.Errorf("after the start: %q, %v", out, exit)
				}
			})
		}
	}
}

// A stop whose time is over before the system files are saved, as when the daemon ends,
// does not end the run: the next one saves them, also when the disk is not mounted then.
func TestSystemFilesOfAStopWithoutTime(t *testing.T) {
	for name, next := range map[string]func(r *running) error{
		"and a start": func(r *running) error { return nil },
		"and a stop by the next daemon": func(r *running) error {
			r.d = r.m.open(r.t)
			root := driver.VolumeDir(r.spec.Volumes, driver.VolumeRoot)
			away := func() error { return os.Rename(root, root+".away") }
			back := func() error { return os.Rename(root+".away", root) }
			return errors.Join(away(), r.d.Stop(r.ctx, r.h, 0), back())
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, runsc, testSpec(t, sandbox.GVisor))
			r.exec("root", "echo kept > /etc/kept")
			over, cancel := context.WithCancel(r.ctx)
			cancel()
			if err := r.d.Stop(over, r.h, 0); !errors.Is(err, errs.Unavailable) {
				t.Errorf("Stop = %v, want unavailable", err)
			}
			r.do("next", next(r))
			r.do("Start", r.d.Start(r.ctx, r.h))
			if out, exit := r.exec("root", "cat /etc/kept"); out != "kept\n" || exit.GetCode() != 0 {
				t.Errorf("after the start: %q, %v", out, exit)
			}
		})
	}
}

// cutStopOff does what a stop does until it ends the run.
func (r *running) cutStopOff() {
	r.t.Helper()
	held, err := r.d.held(r.h)
	r.do("held", err)
	b := r.d.box(r.spec.UID)
	rec, _, err := b.record()
	r.do("record", err)
	rec.Stopping = true
	r.do("setRecord", b.setRecord(rec))
	ctx, cancel := context.WithTimeout(r.ctx, 10*time.Second)
	defer cancel()
	r.do("Shutdown", agent.New(held.line().Dial, new(capability.Known)).Shutdown(ctx, 0))
}
