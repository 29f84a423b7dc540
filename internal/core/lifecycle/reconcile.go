package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/repair"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

const (
	reconcileEvery  = 30 * time.Second
	reconcileAgain  = 5 * time.Second // while something is left that could not be read
	reconcileAtOnce = 8               // sandboxes that are looked at in parallel
)

// Reconciler makes the runtimes and the store agree, both ways.
type Reconciler struct{ *acts }

// Loop reconciles now and then, and when it is asked to, until ctx ends.
func (s *Reconciler) Loop(ctx context.Context) {
	t := time.NewTimer(s.pause())
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-s.debts.wake:
			// What asked for it may need a moment until it can succeed.
			if !gate.Sleep(ctx, time.Second) {
				return
			}
		}
		s.Turn(ctx)
		t.Reset(s.pause())
	}
}

func (s *Reconciler) pause() time.Duration {
	if s.debts.faulty() {
		return reconcileAgain
	}
	return reconcileEvery
}

// Turn makes the runtimes match the store, both ways: every live row is
// compared with what runs, and what belongs to no row is removed. What cannot
// be read is left alone and reported by [Sandboxes.Problems].
func (s *Reconciler) Turn(ctx context.Context) {
	var faults faultList
	var others []Problem
	full := s.debts.begin()
	// What exists is listed before the rows: whatever is made in between has
	// a row already, because the row always comes first.
	found := s.survey(ctx, &faults)
	rows, err := s.rows(ctx, liveRows)
	if err != nil {
		faults.add("store", err)
	} else {
		var mine []sandbox.Sandbox
		mine, others = apart(s.cfg.Driver, rows)
		for _, b := range mine {
			s.lifetimes.note(b, s.cfg.Now(), s.cfg.Uptime())
		}
		s.repairAll(ctx, found, mine, full, &faults)
		s.removeOrphans(ctx, found, rows, &faults)
		s.unpinOrphans(ctx, found.pins, rows, &faults)
		if err := s.cfg.On.Reconcile(ctx); err != nil {
			faults.add("snapshots", err)
		}
		if full {
			s.releaseDisks(ctx, rows, &faults)
			s.removeOldJournals(ctx, found.journals, rows, &faults)
			if err := s.cfg.Live.EndForgotten(ctx); err != nil {
				faults.add("store", err)
			}
		}
	}
	if ctx.Err() != nil {
		return
	}
	for _, p := range faults.list {
		s.cfg.Log.Error("reconcile", "part", p.Part, telemetry.KeyErr, p.Message)
	}
	s.debts.end(full, faults.list, others)
}

// apart returns the sandboxes that are the driver's, and a problem for each other
// driver that has some. Those are left as they are: what runs of them cannot be
// seen, and what cannot be seen is not gone. It is the operator's to solve.
func apart(d driver.Driver, rows []sandbox.Sandbox) (mine []sandbox.Sandbox, others []Problem) {
	errsOf, count := map[string]error{}, map[string]int{}
	for _, b := range rows {
		if err := driver.Serves(d, b.Driver); err != nil {
			errsOf[b.Driver] = err
			count[b.Driver]++
			continue
		}
		mine = append(mine, b)
	}
	for _, name := range slices.Sorted(maps.Keys(errsOf)) {
		p := ProblemOf("other drivers", errsOf[name])
		p.Message = fmt.Sprintf("%d sandboxes are left alone: %s", count[name], p.Message)
		others = append(others, p)
	}
	return mine, others
}

type faultList struct {
	mu   sync.Mutex
	list []Problem // guarded by mu
}

func (f *faultList) add(part string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, ProblemOf(part, err))
}

// findings are what exists outside the store. What is nil was not readable.
type findings struct {
	traces   map[sandbox.UID]driver.Found // of the driver
	journals []sandbox.UID
	pins     []image.Pin
}

func (s *Reconciler) survey(ctx context.Context, faults *faultList) findings {
	failed := func(part string, err error) bool {
		if err != nil {
			s.cfg.Log.Error("list what exists", "part", part, telemetry.KeyErr, err)
			faults.add(part, err)
		}
		return err != nil
	}
	var f findings
	traces, err := s.cfg.Driver.List(ctx)
	if !failed("driver", err) {
		f.traces = make(map[sandbox.UID]driver.Found, len(traces))
		for _, t := range traces {
			f.traces[t.UID] = t
		}
	}
	journals, err := s.cfg.Journals.Boxes()
	if !failed("journals", err) {
		f.journals = journals
	}
	pins, err := s.cfg.Images.Pins(ctx)
	if !failed("images", err) {
		f.pins = pins
	}
	return f
}

// liveRows are the sandboxes that are not failed or destroyed.
var liveRows = store.Query{States: []sandbox.State{sandbox.Creating, sandbox.Running, sandbox.Sleeping, sandbox.Stopped}}

// rows returns every sandbox of a query.
func (s *acts) rows(ctx context.Context, q store.Query) (all []sandbox.Sandbox, err error) {
	for q.Limit = 1000; ; {
		page, next, err := s.cfg.Store.Sandboxes(ctx, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if next == "" {
			return all, nil
		}
		q.After = next
	}
}

func (s *Reconciler) repairAll(ctx context.Context, f findings, rows []sandbox.Sandbox, full bool, faults *faultList) {
	var g errgroup.Group
	g.SetLimit(reconcileAtOnce)
	for _, b := range rows {
		// Runs that are known have watchers, and once nothing is left from an
		// earlier daemon no stopped sandbox can be running.
		if !full && (b.State == sandbox.Stopped || b.State == sandbox.Sleeping || s.cfg.Live.Of(b.UID) != nil) {
			continue
		}
		g.Go(func() error {
			if err := s.repair(ctx, b, f); err != nil && ctx.Err() == nil {
				faults.add("sandbox "+string(b.ID), err)
			}
			return nil
		})
	}
	_ = g.Wait() // they return nil
}

// status is what was seen of a sandbox. The phase is empty when that is unknown.
func (f findings) status(b sandbox.Sandbox) (driver.Status, error) {
	gone := driver.Status{Phase: driver.PhaseGone, Death: driver.Death{Cause: driver.DeathRemoved}}
	if b.Handle == nil {
		return gone, nil
	}
	if f.traces == nil {
		return driver.Status{}, nil // which is among the faults already
	}
	t, ok := f.traces[b.UID]
	switch {
	case !ok:
		return gone, nil
	case t.Err != nil:
		return driver.Status{}, fmt.Errorf("inspect: %w", t.Err)
	}
	return t.Status, nil
}

// repair does about one sandbox what the rule says.
func (s *Reconciler) repair(ctx context.Context, b sandbox.Sandbox, f findings) error {
	unlock, free := s.ids.TryLock(b.ID.Key())
	if !free {
		return nil // somebody is at it
	}
	defer unlock()
	b, err := s.cfg.Store.SandboxByUID(ctx, b.UID)
	if err != nil {
		return err
	}
	o := repair.Observation{State: b.State, Attached: s.cfg.Live.Of(b.UID) != nil}
	var seen driver.Status
	if b.State.Live() && b.State != sandbox.Creating && !o.Attached {
		seen, err = f.status(b)
	}
	o.Phase = seen.Phase
	act := repair.Decide(o)
	if act.Final() {
		// What was listed is from before the lock.
		if seen, err = s.inspect(ctx, b); err != nil {
			return err
		}
		o.Phase = seen.Phase
		act = repair.Decide(o)
	}
	if act != repair.Leave && act != repair.Clear {
		s.cfg.Log.Info("reconcile a sandbox", telemetry.KeySandbox, b.ID, telemetry.KeyUID, b.UID, "state", b.State, "phase", o.Phase, "action", act.String())
	}
	if _, traced := f.traces[b.UID]; traced && b.State == sandbox.Stopped && b.Handle == nil {
		s.clearAway(ctx, b) // a start, create or restore whose handle was never stored
		return nil
	}
	owed, known := s.debts.owed(b.UID)
	switch act {
	case repair.Adopt:
		return s.adopt(ctx, b)
	case repair.Abandon:
		s.abandon(ctx, b, cmp.Or(owed, undone("interrupted by a restart of cubby")))
	case repair.Bury, repair.Settle:
		if act == repair.Bury && !known {
			return s.bury(ctx, b, seen.Death)
		}
		// A stop that was cut off is carried out before it is written down.
		if err := s.letGo(ctx, b); err != nil {
			return err
		}
		why := cmp.Or(owed, interrupted("the daemon ended while it was stopping the sandbox, or putting it to sleep: its files are kept"))
		_, err := s.stopped(ctx, b, why, event.Stopped{Reason: why.Reason})
		return err
	case repair.Rest:
		// Its disk stays mounted and its commands stay begun: they go on.
		_, err := s.asleep(ctx, b, cmp.Or(owed, interrupted("the daemon ended while it was putting the sandbox to sleep")))
		return err
	case repair.Rise:
		return s.rise(ctx, b)
	case repair.Lose:
		// A wake or start that was cut off is undone before it is written down.
		if err := s.letGo(ctx, b); err != nil {
			return err
		}
		_, err := s.lose(ctx, b, errs.E(errs.NotFound, "it is gone from the host"))
		return err
	case repair.Clear:
		return s.letGo(ctx, b)
	case repair.Halt:
		if err := s.cfg.Driver.Stop(ctx, b.Handle, DefaultGrace); err != nil && !errors.Is(err, errs.NotFound) {
			return fmt.Errorf("stop what should not run: %w", err)
		}
		s.admission.Give(b.UID)
		if err := s.unmount(ctx, b); err != nil {
			return fmt.Errorf("unmount the disk of what should not run: %w", err)
		}
	case repair.Leave:
	}
	return err
}

// inspect asks the driver about one sandbox.
func (s *acts) inspect(ctx context.Context, b sandbox.Sandbox) (driver.Status, error) {
	gone := driver.Status{Phase: driver.PhaseGone, Death: driver.Death{Cause: driver.DeathRemoved}}
	if b.Handle == nil {
		return gone, nil
	}
	st, err := s.cfg.Driver.Inspect(ctx, b.Handle)
	if errors.Is(err, errs.NotFound) || err == nil && st.Phase == driver.PhaseGone {
		return gone, nil
	}
	if err != nil {
		return driver.Status{}, fmt.Errorf("inspect: %w", err)
	}
	return st, nil
}

// rise takes over a sandbox that an earlier daemon woke, and whose row does not
// say so.
func (s *Reconciler) rise(ctx context.Context, b sandbox.Sandbox) error {
	b, err := s.cfg.Store.Move(ctx, b.UID, sandbox.Running, store.Change{
		Events: []sandbox.Event{event.New(b.UID, "", event.Woken{})},
	})
	if err != nil {
		return err
	}
	return s.adopt(ctx, b)
}

// adopt takes over a sandbox that an earlier daemon started, with its execs.
func (s *Reconciler) adopt(ctx context.Context, b sandbox.Sandbox) error {
	err := s.cfg.Driver.Adopt(ctx, b.Handle)
	if errors.Is(err, errs.NotFound) || errors.Is(err, errs.WrongState) {
		// It died between the two questions; the next look says why.
		s.debts.reconcileSoon()
		return nil
	}
	if err != nil {
		return fmt.Errorf("adopt: %w", err)
	}
	if _, err := s.tenants.Attach(ctx, b); err != nil {
		// It has its own way to its disks already, and keeps it.
		s.cfg.Log.Error("mount the disks of a sandbox that runs", telemetry.KeyUID, b.UID, telemetry.KeyErr, err)
	}
	if _, err := s.readopt(ctx, b); err != nil {
		return err
	}
	s.cfg.Recorder.Note(ctx, event.New(b.UID, "", event.Adopted{}))
	return nil
}
