package drivertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// toReport is the contract's second, with room for a busy machine.
const toReport = 5 * time.Second

func testWait(t *testing.T, s *suite) {
	_, h := s.create(t)
	death, err := s.d.Wait(s.ctx, h)
	if err != nil || death.Cause != driver.DeathNone {
		t.Errorf("Wait before start = %+v, %v; want no death", death, err)
	}
	s.do(t, "Start", s.d.Start(s.ctx, h))
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if _, err := s.d.Wait(ctx, h); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait with a canceled context = %v, want canceled", err)
	}
	waited := make(chan driver.Death, 2)
	for range 2 {
		go func() {
			death, err := s.d.Wait(s.ctx, h)
			if err != nil {
				death.Cause = driver.DeathCause(err.Error())
			}
			waited <- death
		}()
	}
	s.do(t, "Stop", s.d.Stop(s.ctx, h, 0))
	for range 2 {
		if death := <-waited; death.Cause != driver.DeathNone {
			t.Errorf("Wait over a stop = %+v, want no death", death)
		}
	}
}

func testDeath(t *testing.T, s *suite) {
	spec, h := s.start(t)
	waited := make(chan driver.Death, 1)
	failed := make(chan error, 1)
	go func() {
		death, err := s.d.Wait(s.ctx, h)
		if err != nil {
			failed <- err
			return
		}
		waited <- death
	}()
	s.env.Crash(t, spec.UID)
	var death driver.Death
	select {
	case death = <-waited:
	case err := <-failed:
		t.Fatalf("Wait: %v", err)
	case <-time.After(toReport):
		t.Fatalf("the death was not reported within %v", toReport)
	}
	forgotten := s.env.ForgetsDeaths && death.Cause == driver.DeathUnknown && death.Detail != ""
	if !forgotten && (death.Cause != driver.DeathSignal || death.Signal != "SIGKILL") {
		t.Errorf("Wait = %+v, want signal SIGKILL", death)
	}
	if got := s.phase(t, h, driver.PhaseDead); got.Cause != death.Cause {
		t.Errorf("Inspect says %+v, Wait said %+v", got, death)
	}
	again, err := s.d.Wait(s.ctx, h)
	if err != nil || again.Cause != death.Cause {
		t.Errorf("second Wait = %+v, %v; want %+v", again, err, death)
	}
}

func testStartAfterDeath(t *testing.T, s *suite) {
	spec, h := s.start(t)
	s.exec(t, h, "echo one > a")
	s.env.Crash(t, spec.UID)
	if _, err := s.d.Wait(s.ctx, h); err != nil {
		t.Fatalf("Wait: %v", err)
	}
	s.do(t, "Start", s.d.Start(s.ctx, h))
	s.phase(t, h, driver.PhaseRunning)
	if got := s.exec(t, h, "cat a"); got != "one\n" {
		t.Errorf("a after the death = %q, want %q", got, "one\n")
	}
}

func testAdopt(t *testing.T, s *suite) {
	spec, h := s.start(t)
	s.launch(t, h, "echo $$ > pid; echo ready; exec sleep 600")
	before := s.bootID(t, h)
	s.do(t, "Adopt what is held", s.d.Adopt(s.ctx, h))

	s.d = s.env.Reopen(t)
	s.phase(t, h, driver.PhaseRunning)
	s.listed(t, spec.UID, true)
	for range 2 {
		s.do(t, "Adopt", s.d.Adopt(s.ctx, h))
	}
	if after := s.bootID(t, h); after != before {
		t.Errorf("agent %s answers after the restart, want %s", after, before)
	}
	s.exec(t, h, "kill -0 $(cat pid)")

	// Start is allowed to find it running, and leaves it alone.
	s.do(t, "Start", s.d.Start(s.ctx, h))
	if after := s.bootID(t, h); after != before {
		t.Errorf("agent %s answers after another start, want %s", after, before)
	}
	waited := make(chan driver.Death, 1)
	go func() {
		death, _ := s.d.Wait(s.ctx, h)
		waited <- death
	}()
	s.env.Crash(t, spec.UID)
	select {
	case death := <-waited:
		if death.Cause != driver.DeathSignal && death.Cause != driver.DeathUnknown {
			t.Errorf("Wait = %+v, want a signal", death)
		}
	case <-time.After(toReport):
		t.Errorf("the death of an adopted sandbox was not reported within %v", toReport)
	}
}

func testAdoptRefuses(t *testing.T, s *suite) {
	_, h := s.create(t)
	wantKind(t, "Adopt before start", s.d.Adopt(s.ctx, h), errs.WrongState)
	s.do(t, "Start", s.d.Start(s.ctx, h))
	s.do(t, "Stop", s.d.Stop(s.ctx, h, 0))
	wantKind(t, "Adopt after stop", s.d.Adopt(s.ctx, h), errs.WrongState)
}

// A daemon that comes back may be told at once to stop or destroy what it has
// not adopted.
func testStopAfterRestart(t *testing.T, s *suite) {
	_, h := s.start(t)
	_, other := s.start(t)
	s.d = s.env.Reopen(t)
	s.do(t, "Stop", s.d.Stop(s.ctx, h, 0))
	s.phase(t, h, driver.PhaseCreated)
	s.do(t, "Destroy", s.d.Destroy(s.ctx, other))
	s.phase(t, other, driver.PhaseGone)
}

func testDeathWhileAway(t *testing.T, s *suite) {
	spec, h := s.start(t)
	s.d = s.env.Reopen(t)
	s.env.Crash(t, spec.UID)
	death, err := s.d.Wait(s.ctx, h)
	if err != nil || death.Cause == driver.DeathNone {
		t.Errorf("Wait = %+v, %v; want a cause", death, err)
	}
	s.phase(t, h, driver.PhaseDead)
	wantKind(t, "Adopt", s.d.Adopt(s.ctx, h), errs.WrongState)
}

func testListAndSweep(t *testing.T, s *suite) {
	first, _ := s.create(t)
	second, h := s.start(t)
	third, _ := s.start(t)
	s.d = s.env.Reopen(t)
	for _, spec := range []driver.Spec{first, second} {
		s.listed(t, spec.UID, true)
		for range 2 {
			s.do(t, "Sweep", s.d.Sweep(s.ctx, spec.UID))
			s.listed(t, spec.UID, false)
		}
	}
	s.phase(t, h, driver.PhaseGone)
	s.listed(t, third.UID, true)
}

// One call says of all sandboxes what Inspect says of each, also to a daemon
// that has adopted none.
func testListStatus(t *testing.T, s *suite) {
	handles := make(map[sandbox.UID]driver.Handle)
	want := make(map[sandbox.UID]driver.Phase)
	note := func(spec driver.Spec, h driver.Handle, phase driver.Phase) {
		handles[spec.UID], want[spec.UID] = h, phase
	}
	created, h := s.create(t)
	note(created, h, driver.PhaseCreated)
	running, h := s.start(t)
	note(running, h, driver.PhaseRunning)
	stopped, h := s.start(t)
	s.do(t, "Stop", s.d.Stop(s.ctx, h, 0))
	note(stopped, h, driver.PhaseCreated)
	dead, h := s.start(t)
	s.env.Crash(t, dead.UID)
	if _, err := s.d.Wait(s.ctx, h); err != nil {
		t.Fatalf("Wait: %v", err)
	}
	note(dead, h, driver.PhaseDead)
	for _, when := range []string{"at once", "after a restart"} {
		for uid, phase := range want {
			f, listed := s.found(t, uid)
			st, err := s.d.Inspect(s.ctx, handles[uid])
			if !listed || f.Err != nil || err != nil || f.Status != st || st.Phase != phase {
				t.Errorf("%s: List says %v, %+v, and Inspect %+v, %v; want %s", when, listed, f, st, err, phase)
			}
		}
		s.d = s.env.Reopen(t)
	}
}

func testClose(t *testing.T, s *suite) {
	_, h := s.start(t)
	before := s.bootID(t, h)
	s.do(t, "Close", s.d.Close())
	s.d = s.env.Reopen(t)
	s.do(t, "Adopt", s.d.Adopt(s.ctx, h))
	if after := s.bootID(t, h); after != before {
		t.Errorf("agent %s answers after Close, want %s", after, before)
	}
}
