package drivertest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
)

// The tests of each ability, for drivers that have it. An isolation that cannot
// may answer Unsupported, and then nothing may have happened.

func sleeperTests() []suiteTest {
	return []suiteTest{
		{"sleep keeps what runs", testSleepKeepsWhatRuns},
		{"sleep looks like a stop", testSleepLooksLikeAStop},
		{"sleep survives a restart", testSleepSurvivesRestart},
		{"start of a sleeper is cold", testStartOfSleeper},
		{"stop of a sleeper", testStopOfSleeper},
		{"destroy of a sleeper", testDestroyOfSleeper},
		{"sleep and wake refuse", testSleepRefuses},
	}
}

func treeKillerTests() []suiteTest { return []suiteTest{{"kill others", testKillOthers}} }

func oomReaderTests() []suiteTest { return []suiteTest{{"oom kills", testOOMKills}} }

// sleep puts a sandbox to sleep; false where its isolation cannot.
func (s *suite) sleep(t *testing.T, h driver.Handle) bool {
	t.Helper()
	sleeper, _ := driver.As[driver.Sleeper](s.d)
	can, err := sleeper.CanSleep(s.ctx, h), sleeper.Sleep(s.ctx, h)
	if errors.Is(can, errs.Unsupported) != errors.Is(err, errs.Unsupported) {
		t.Errorf("CanSleep = %v, Sleep = %v", can, err)
	}
	if errors.Is(err, errs.Unsupported) {
		s.phase(t, h, driver.PhaseRunning)
		s.exec(t, h, "true")
		return false
	}
	s.do(t, "Sleep", err)
	s.phase(t, h, driver.PhaseAsleep)
	return true
}

func (s *suite) wake(t *testing.T, h driver.Handle) {
	t.Helper()
	sleeper, _ := driver.As[driver.Sleeper](s.d)
	s.do(t, "Wake", sleeper.Wake(s.ctx, h))
	s.phase(t, h, driver.PhaseRunning)
}

// counter starts a command that counts in its memory how often it is asked.
func (s *suite) counter(t *testing.T, h driver.Handle) {
	t.Helper()
	s.launch(t, h, `n=0; echo ready; while :; do if [ -e ask ]; then n=$((n+1)); rm ask; echo $n > new; mv new answer; fi; sleep 0.02; done`)
}

func (s *suite) count(t *testing.T, h driver.Handle) string {
	t.Helper()
	return strings.TrimSpace(s.exec(t, h, "rm -f answer; touch ask; while [ ! -e answer ]; do sleep 0.02; done; cat answer"))
}

func testSleepKeepsWhatRuns(t *testing.T, s *suite) {
	spec, h := s.start(t)
	s.counter(t, h)
	if got := s.count(t, h); got != "1" {
		t.Fatalf("the counter said %q, want 1", got)
	}
	before := s.bootID(t, h)
	for _, want := range []string{"2", "3"} { // also out of a memory that was kept once before
		if !s.sleep(t, h) {
			return
		}
		if f, ok := s.found(t, spec.UID); !ok || f.Err != nil || f.Status.Phase != driver.PhaseAsleep || f.Status.MemoryOnDisk <= 0 {
			t.Errorf("List says of it %+v, %v; want that it is asleep, and a size", f, ok)
		}
		sleeper, _ := driver.As[driver.Sleeper](s.d)
		s.do(t, "second Sleep", sleeper.Sleep(s.ctx, h))
		s.wake(t, h)
		s.wake(t, h) // which does nothing
		if after := s.bootID(t, h); after != before {
			t.Errorf("agent %s answers after the wake, want %s", after, before)
		}
		if got := s.count(t, h); got != want {
			t.Errorf("the counter said %q, want %s", got, want)
		}
	}
}

func testSleepLooksLikeAStop(t *testing.T, s *suite) {
	_, h := s.start(t)
	egress := make(chan error, 1)
	waited := make(chan driver.Death, 1)
	go func() {
		_, _, err := s.d.AcceptEgress(s.ctx, h)
		egress <- err
	}()
	go func() {
		death, err := s.d.Wait(s.ctx, h)
		if err != nil {
			death.Cause = driver.DeathCause(err.Error())
		}
		waited <- death
	}()
	if !s.sleep(t, h) {
		s.do(t, "Stop", s.d.Stop(s.ctx, h, 0)) // ends both
		if err := <-egress; err == nil {
			t.Error("AcceptEgress outlived the stop")
		}
		<-waited
		return
	}
	if err := <-egress; err == nil {
		t.Error("AcceptEgress outlived the sleep")
	}
	if death := <-waited; death.Cause != driver.DeathNone {
		t.Errorf("Wait over a sleep = %+v, want no death", death)
	}
	if death, err := s.d.Wait(s.ctx, h); err != nil || death.Cause != driver.DeathNone {
		t.Errorf("Wait for a sleeper = %+v, %v; want no death", death, err)
	}
	_, err := s.d.DialGuest(s.ctx, h)
	wantKind(t, "DialGuest", err, errs.Unavailable)
	wantKind(t, "Adopt", s.d.Adopt(s.ctx, h), errs.WrongState)
	_, err = s.d.Stats(s.ctx, h)
	wantKind(t, "Stats", err, errs.WrongState)
}

func testSleepSurvivesRestart(t *testing.T, s *suite) {
	_, h := s.start(t)
	s.counter(t, h)
	s.count(t, h)
	before := s.bootID(t, h)
	if !s.sleep(t, h) {
		return
	}
	s.d = s.env.Reopen(t)
	s.phase(t, h, driver.PhaseAsleep)
	s.wake(t, h)
	if after := s.bootID(t, h); after != before {
		t.Errorf("agent %s answers after the wake, want %s", after, before)
	}
	s.d = s.env.Reopen(t) // what was woken is adopted as what was started
	s.do(t, "Adopt", s.d.Adopt(s.ctx, h))
	if got := s.count(t, h); got != "2" {
		t.Errorf("the counter said %q, want 2", got)
	}
}

// leaveFiles writes where a sandbox's files are; files reads them again.
func (s *suite) leaveFiles(t *testing.T, h driver.Handle) {
	t.Helper()
	s.exec(t, h, "echo one > a")
	if s.env.OwnRoot {
		s.execAs(t, h, "root", "echo two > /etc/c && echo three > /home/sandbox/d")
	}
}

func (s *suite) files(t *testing.T, h driver.Handle) {
	t.Helper()
	script, want := "cat a", "one\n"
	if s.env.OwnRoot {
		script, want = "cat a /etc/c /home/sandbox/d", "one\ntwo\nthree\n"
	}
	if got := s.exec(t, h, script); got != want {
		t.Errorf("the files are %q, want %q", got, want)
	}
}

func testStartOfSleeper(t *testing.T, s *suite) {
	_, h := s.start(t)
	s.leaveFiles(t, h)
	before := s.bootID(t, h)
	if !s.sleep(t, h) {
		return
	}
	s.do(t, "Start", s.d.Start(s.ctx, h))
	s.phase(t, h, driver.PhaseRunning)
	if after := s.bootID(t, h); after == before {
		t.Error("the same agent answers after a cold start")
	}
	s.files(t, h)
}

func testStopOfSleeper(t *testing.T, s *suite) {
	_, h := s.start(t)
	s.leaveFiles(t, h)
	if !s.sleep(t, h) {
		return
	}
	s.do(t, "Stop", s.d.Stop(s.ctx, h, time.Second))
	s.phase(t, h, driver.PhaseCreated)
	sleeper, _ := driver.As[driver.Sleeper](s.d)
	wantKind(t, "Wake of what was stopped", sleeper.Wake(s.ctx, h), errs.WrongState)
	s.do(t, "Start", s.d.Start(s.ctx, h))
	s.files(t, h)
}

func testDestroyOfSleeper(t *testing.T, s *suite) {
	spec, h := s.start(t)
	if !s.sleep(t, h) {
		return
	}
	s.do(t, "Destroy", s.d.Destroy(s.ctx, h))
	s.phase(t, h, driver.PhaseGone)
	s.listed(t, spec.UID, false)

	spec, h = s.start(t)
	s.sleep(t, h)
	s.d = s.env.Reopen(t)
	s.do(t, "Sweep", s.d.Sweep(s.ctx, spec.UID))
	s.phase(t, h, driver.PhaseGone)
	s.listed(t, spec.UID, false)
}

func testSleepRefuses(t *testing.T, s *suite) {
	sleeper, _ := driver.As[driver.Sleeper](s.d)
	_, h := s.create(t)
	wantKind(t, "Sleep before a start", sleeper.Sleep(s.ctx, h), errs.WrongState, errs.Unsupported)
	wantKind(t, "Wake before a start", sleeper.Wake(s.ctx, h), errs.WrongState, errs.Unsupported)
	s.phase(t, h, driver.PhaseCreated)
	s.do(t, "Destroy", s.d.Destroy(s.ctx, h))
	wantKind(t, "Sleep of what is gone", sleeper.Sleep(s.ctx, h), errs.NotFound, errs.Unsupported)
	wantKind(t, "Wake of what is gone", sleeper.Wake(s.ctx, h), errs.NotFound, errs.Unsupported)
}

func testKillOthers(t *testing.T, s *suite) {
	spec, h := s.start(t)
	s.launch(t, h, "echo $$ > pid; echo ready; exec sleep 600")
	before := s.bootID(t, h)
	killer, _ := driver.As[driver.TreeKiller](s.d)
	err := killer.KillOthers(s.ctx, h, nil)
	unsupported := errors.Is(err, errs.Unsupported)
	if !unsupported {
		s.do(t, "KillOthers", err)
	}
	if after := s.bootID(t, h); after != before {
		t.Errorf("agent %s answers, want %s", after, before)
	}
	if lives := s.exec(t, h, "kill -0 $(cat pid) 2>/dev/null && echo lives || echo dead") == "lives\n"; lives != unsupported {
		t.Errorf("of %s a command lives = %v, unsupported = %v", spec.Isolation, lives, unsupported)
	}
}

func testOOMKills(t *testing.T, s *suite) {
	_, h := s.start(t)
	began := time.Now()
	s.exec(t, h, "sleep 600 & kill -9 $!; wait $! || true")
	reader, _ := driver.As[driver.OOMReader](s.d)
	if kills, err := reader.OOMKills(s.ctx, h, began); err != nil || len(kills) > 0 {
		t.Errorf("OOMKills = %+v, %v; want none: it was killed by another hand", kills, err)
	}
}
