package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/poll"
	"github.com/cubbyhq/cubby/internal/store"
)

// clock is a time that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time // guarded by mu
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) set(t *testing.T, text string) {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = at
}

// crons is a world whose clock stands, with an agent in it.
func crons(t *testing.T, at string) (w *world, _ *clock, s *agent.Service, stop func()) {
	c := new(clock)
	c.set(t, at)
	w = newWorld(t)
	w.now = c.Now
	s, stop = w.daemon()
	return w, c, s, stop
}

func every(schedule string, run agent.NewRun) agent.NewCron {
	return agent.NewCron{Schedule: schedule, Run: run}
}

func createCron(t *testing.T, s *agent.Service, n agent.NewCron) conversation.Cron {
	t.Helper()
	made, err := s.Crons().Create(acme(t), n)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func fire(t *testing.T, s *agent.Service) time.Time {
	t.Helper()
	next, err := s.FireCrons(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func cronOf(t *testing.T, s *agent.Service, id string) conversation.Cron {
	t.Helper()
	c, err := s.Crons().Get(acme(t), id)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// eventually waits until do returns no error.
func eventually(t *testing.T, do func() error) {
	t.Helper()
	var last error
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := poll.Until(ctx, time.Millisecond, 50*time.Millisecond, func() (bool, error) { last = do(); return last == nil, nil }); err != nil {
		t.Fatal(last)
	}
}

// runsOf are the runs of a thread, newest first.
func runsIn(t *testing.T, s *agent.Service, thread string) []conversation.Run {
	t.Helper()
	list, err := runsOf(acme(t), s, thread, agent.RunQuery{})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestCronBeginsRuns: a run begins when its time has come, once, as a run of its tenant's.
func TestCronBeginsRuns(t *testing.T) {
	_, clock, s, _ := crons(t, "2026-01-01T00:00:30Z")
	thread := newThread(t, s)
	n := every("*/10 * * * *", says("hello"))
	n.Thread = thread
	made := createCron(t, s, n)
	if want := "2026-01-01T00:10:00Z"; made.Next.Format(time.RFC3339) != want {
		t.Fatalf("next %s, want %s", made.Next, want)
	}
	if next := fire(t, s); !next.Equal(made.Next) || len(runsIn(t, s, thread)) != 0 {
		t.Errorf("before its time: next %s, runs %v", next, runsIn(t, s, thread))
	}
	clock.set(t, "2026-01-01T00:10:00Z")
	// As many as want to begin it: one does.
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := s.FireCrons(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	eventually(t, func() error { // the service begins it too
		if c := cronOf(t, s, made.ID); c.LastRun == "" {
			return fmt.Errorf("the cron is %+v", c)
		}
		return nil
	})
	runs := runsIn(t, s, thread)
	if len(runs) != 1 || string(runs[0].Request.Configurable["cron_id"]) != `"`+made.ID+`"` || runs[0].Multitask != conversation.MultitaskEnqueue {
		t.Fatalf("runs %+v", runs)
	}
	if _, run, err := s.Runs().Wait(acme(t), thread, runs[0].ID); err != nil || run.Status != conversation.RunSuccess {
		t.Errorf("the run is %s, %v", run.Status, err)
	}
	after := cronOf(t, s, made.ID)
	if after.LastRun != runs[0].ID || after.LastThread != thread || after.Failure != "" || after.Next.Format(time.RFC3339) != "2026-01-01T00:20:00Z" ||
		!after.LastAt.Equal(made.Next) {
		t.Errorf("the cron is %+v", after)
	}
	// Others do not see it.
	if _, err := s.Crons().Get(t.Context(), made.ID); !errors.Is(err, errs.NotFound) {
		t.Errorf("another tenant's Get = %v", err)
	}
}

// TestMissedRunsBeginOnce: what was missed while no daemon ran begins once.
func TestMissedRunsBeginOnce(t *testing.T) {
	_, clock, s, _ := crons(t, "2026-01-01T00:00:00Z")
	n := every("* * * * *", says("hello"))
	n.Thread = newThread(t, s)
	made := createCron(t, s, n)
	clock.set(t, "2026-01-03T12:30:30Z")
	next := fire(t, s)
	eventually(t, func() error { // the service looks by itself too
		if n := len(runsIn(t, s, n.Thread)); n != 1 || next.Format(time.RFC3339) != "2026-01-03T12:31:00Z" {
			return fmt.Errorf("next %s, %d runs", next, n)
		}
		return nil
	})
	if c := cronOf(t, s, made.ID); !c.LastAt.Equal(made.Next) {
		t.Errorf("the cron is %+v", c)
	}
}

// TestCronEnds: no run begins after the end of its cron, also one that was missed, and
// none of a cron that is disabled.
func TestCronEnds(t *testing.T) {
	_, clock, s, _ := crons(t, "2026-01-01T00:00:00Z")
	thread := newThread(t, s)
	make := func(end string, disabled bool) conversation.Cron {
		n := every("0 * * * *", says("hello"))
		n.Thread, n.Disabled = thread, disabled
		if end != "" {
			at, err := time.Parse(time.RFC3339, end)
			if err != nil {
				t.Fatal(err)
			}
			n.EndTime = at
		}
		return createCron(t, s, n)
	}
	missed, over, off := make("2026-01-01T01:30:00Z", false), make("2026-01-01T00:30:00Z", false), make("", true)
	if !over.Next.IsZero() {
		t.Errorf("a run is to begin after the end: %+v", over)
	}
	clock.set(t, "2026-01-01T02:00:00Z")
	if next := fire(t, s); !next.IsZero() || len(runsIn(t, s, thread)) != 0 {
		t.Errorf("next %s, runs %v", next, runsIn(t, s, thread))
	}
	for _, id := range []string{missed.ID, over.ID, off.ID} {
		if c := cronOf(t, s, id); c.LastRun != "" || c.Failure != "" {
			t.Errorf("the cron is %+v", c)
		}
	}
	yes := true
	if c, err := s.Crons().Update(acme(t), off.ID, agent.CronPatch{Enabled: &yes}); err != nil || c.Next.Format(time.RFC3339) != "2026-01-01T03:00:00Z" {
		t.Errorf("enabled: %+v, %v", c, err)
	}
}

// TestCronThatCannotBegin: a tenant without room, or whose run before has not ended, gets
// no run and no storm, and its cron says why.
func TestCronThatCannotBegin(t *testing.T) {
	c := new(clock)
	c.set(t, "2026-01-01T00:30:00Z")
	w := newWorld(t)
	w.now, w.bounds = c.Now, agent.Bounds{RunsOfTenant: 1}
	s, _ := w.daemon()
	slow := createCron(t, s, every("0 * * * *", says("wait")))
	full := createCron(t, s, every("5 * * * *", says("hello")))
	c.set(t, "2026-01-01T01:00:00Z")
	fire(t, s)
	select {
	case <-w.model.waiting:
	case <-time.After(5 * time.Second):
		t.Fatalf("the model is not asked: %+v", cronOf(t, s, slow.ID))
	}
	if got := cronOf(t, s, slow.ID); got.LastRun == "" || got.Failure != "" {
		t.Fatalf("the cron is %+v", got)
	}
	c.set(t, "2026-01-01T02:30:00Z")
	next := fire(t, s)
	if got := cronOf(t, s, slow.ID); !strings.Contains(got.Failure, "has not ended") || got.LastRun == "" {
		t.Errorf("the cron is %+v", got)
	}
	if got := cronOf(t, s, full.ID); !strings.Contains(got.Failure, "runs of the agent") || got.LastRun != "" {
		t.Errorf("the cron is %+v", got)
	}
	if next.Format(time.RFC3339) != "2026-01-01T03:00:00Z" {
		t.Errorf("it is tried again at %s", next)
	}
	close(w.model.release)
	got := cronOf(t, s, slow.ID)
	if _, _, err := s.Runs().Wait(acme(t), got.LastThread, got.LastRun); err != nil {
		t.Error(err)
	}
	c.set(t, "2026-01-01T03:05:00Z")
	before := got.LastRun
	eventually(t, func() error { // the place is given back a moment after the end
		fire(t, s)
		if got = cronOf(t, s, slow.ID); got.Failure != "" || got.LastRun == before {
			c.set(t, c.Now().Add(time.Hour).Format(time.RFC3339))
			return fmt.Errorf("the cron is %+v", got)
		}
		return nil
	})
}

// TestCronLeftByADaemon: a daemon that ends between the claim and the run leaves a run that
// did not begin, which the cron says, and the next daemon begins no second one.
func TestCronLeftByADaemon(t *testing.T) {
	w, c, s, stop := crons(t, "2026-01-01T00:00:00Z")
	const unbegun = "the daemon ended before the run began"
	made := createCron(t, s, every("0 * * * *", says("hello")))
	stop()
	c.set(t, "2026-01-01T01:00:00Z")
	db, err := store.Open(t.Context(), store.Config{Path: w.db(), URL: w.url, Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ClaimCron(t.Context(), func(c *conversation.Cron) {
		c.LastAt, c.Failure, c.Next = c.Next, unbegun, c.Next.Add(time.Hour)
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s, _ = w.daemon()
	fire(t, s)
	if got := cronOf(t, s, made.ID); got.LastRun != "" || got.Failure != unbegun || got.Next.Format(time.RFC3339) != "2026-01-01T02:00:00Z" {
		t.Errorf("the cron is %+v", got)
	}
}

// TestCronsRunByThemselves: a cron that is due begins without being asked, also after a
// restart.
func TestCronsRunByThemselves(t *testing.T) {
	w, c, s, stop := crons(t, "2026-01-01T00:59:59Z")
	n := every("0 * * * *", says("hello"))
	n.Run.Keep = true
	made := createCron(t, s, n)
	c.set(t, "2026-01-01T01:00:00Z")
	began := func() conversation.Cron {
		t.Helper()
		var got conversation.Cron
		eventually(t, func() error {
			if got = cronOf(t, s, made.ID); got.LastRun == "" || got.Failure != "" || !got.LastAt.Equal(c.Now()) {
				return fmt.Errorf("the cron is %+v", got)
			}
			return nil
		})
		return got
	}
	first := began()
	if _, _, err := s.Runs().Wait(acme(t), first.LastThread, first.LastRun); err != nil {
		t.Fatal(err)
	}
	stop()
	c.set(t, "2026-01-01T02:00:00Z")
	s, _ = w.daemon()
	if second := began(); second.LastRun == first.LastRun || second.LastThread == first.LastThread {
		t.Errorf("the cron is %+v", second)
	}
}
