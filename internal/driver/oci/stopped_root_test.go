//go:build root

package oci

import (
	"context"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/agent"
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
	r.do("Shutdown", agent.New(held.line().Dial).Shutdown(ctx, 0))
}
