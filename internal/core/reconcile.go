package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cubbyhq/cubby/internal/core/gate"
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

// action is what makes a sandbox's row and what runs agree.
type action int

const (
	leaveIt  action = iota
	adoptIt         // runs, and this daemon does not know it yet
	abandonC        // a create that nobody carries on
	buryIt          // should run and does not
	settleIt        // was being stopped when the daemon went
	haltIt          // runs and should not
	clearIt         // does not run, and may have pieces of a start or stop that was cut off
)

func (a action) String() string {
	return [...]string{"leave", "adopt", "abandon", "bury", "settle", "halt", "clear"}[a]
}

// observation is what is known about a sandbox while its lock is held.
type observation struct {
	state sandbox.State
	// attached: this daemon has its run, and with it a watcher.
	attached bool
	// phase is what the driver sees; empty when it could not be asked.
	phase driver.Phase
}

// decide is the reconciler's rule. The store is the truth about what shall be,
// the driver about what is, and what could not be read leads to nothing.
func decide(o observation) action {
	switch o.state {
	case sandbox.Creating:
		// Its lock is held here, so no create works on it any more.
		return abandonC
	case sandbox.Running:
		switch o.phase {
		case driver.PhaseRunning:
			if !o.attached {
				return adoptIt
			}
		case driver.PhaseCreated:
			return settleIt
		case driver.PhaseDead, driver.PhaseGone:
			return buryIt
		}
	case sandbox.Stopped, sandbox.Sleeping:
		switch o.phase {
		case driver.PhaseRunning:
			return haltIt
		case driver.PhaseCreated, driver.PhaseDead:
			return clearIt
		case driver.PhaseGone:
		}
	case sandbox.Failed, sandbox.Destroyed:
		// Traces of these are orphans.
	}
	return leaveIt
}

// reconcileSoon asks for a reconciliation before its time.
func (s *Service) reconcileSoon() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// lookAtAll asks for a reconciliation that looks at every row soon, because an
// act left something that no watcher sees.
func (s *Service) lookAtAll() {
	s.mu.Lock()
	s.settled = false
	s.mu.Unlock()
	s.reconcileSoon()
}

// owe keeps the why of an end that the store could not note, for the
// reconciliation that makes up for it.
func (s *Service) owe(uid sandbox.UID, why sandbox.Why) {
	s.mu.Lock()
	s.untold[uid] = why
	s.mu.Unlock()
	s.lookAtAll()
}

// owed returns the why that is owed for a sandbox.
func (s *Service) owed(uid sandbox.UID) (why sandbox.Why, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	why, ok = s.untold[uid]
	return why, ok
}

// told ends what is owed for a sandbox.
func (s *Service) told(uid sandbox.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.untold, uid)
}

func (s *Service) reconcileLoop(ctx context.Context) {
	t := time.NewTimer(s.reconcilePause())
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-s.wake:
			// What asked for it may need a moment until it can succeed.
			if !gate.Sleep(ctx, time.Second) {
				return
			}
		}
		s.reconcile(ctx)
		t.Reset(s.reconcilePause())
	}
}

func (s *Service) reconcilePause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.faults) > 0 {
		return reconcileAgain
	}
	return reconcileEvery
}

// reconcile makes the runtimes match the store, both ways: every live row is
// compared with what runs, and what belongs to no row is removed. What cannot
// be read is left alone and reported by [Service.Ready].
func (s *Service) reconcile(ctx context.Context) {
	var faults faultList
	s.mu.Lock()
	full := !s.settled
	s.settled = true // unless somebody says otherwise meanwhile
	s.mu.Unlock()
	// What exists is listed before the rows: whatever is made in between has
	// a row already, because the row always comes first.
	found := s.survey(ctx, &faults)
	rows, err := s.liveRows(ctx)
	if err != nil {
		faults.add("store", err)
	} else {
		for _, b := range rows {
			s.lifetimes.note(b, s.now(), s.uptime())
		}
		s.repairAll(ctx, rows, full, &faults)
		s.removeOrphans(ctx, found, rows, &faults)
		s.unpinOrphans(ctx, found.pins, rows, &faults)
		if full {
			s.closeShared(ctx, rows, &faults)
			s.removeOldJournals(ctx, found.journals, rows, &faults)
			if err := s.endForgotten(ctx); err != nil {
				faults.add("store", err)
			}
		}
	}
	if ctx.Err() != nil {
		return
	}
	for _, p := range faults.list {
		s.log.Error("reconcile", "part", p.Part, telemetry.KeyErr, p.Message)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = faults.list
	if full && len(faults.list) > 0 {
		s.settled = false
	}
}

type faultList struct {
	mu   sync.Mutex
	list []Problem // guarded by mu
}

func (f *faultList) add(part string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, problem(part, err))
}

// findings are what exists outside the store. A nil list was not readable.
type findings struct {
	traces   []sandbox.UID // of the driver
	disks    []sandbox.UID
	journals []sandbox.UID
	pins     []image.Pin
}

func (s *Service) survey(ctx context.Context, faults *faultList) findings {
	failed := func(part string, err error) bool {
		if err != nil {
			s.log.Error("list what exists", "part", part, telemetry.KeyErr, err)
			faults.add(part, err)
		}
		return err != nil
	}
	list := func(part string, uids []sandbox.UID, err error) []sandbox.UID {
		if failed(part, err) {
			return nil
		}
		return uids
	}
	var f findings
	uids, err := s.cfg.Driver.List(ctx)
	f.traces = list("driver", uids, err)
	uids, err = s.cfg.Disks.List()
	f.disks = list("disks", uids, err)
	uids, err = s.cfg.Journals.Boxes()
	f.journals = list("journals", uids, err)
	pins, err := s.cfg.Images.Pins(ctx)
	if !failed("images", err) {
		f.pins = pins
	}
	return f
}

// liveRows returns every sandbox that is not failed or destroyed.
func (s *Service) liveRows(ctx context.Context) ([]sandbox.Sandbox, error) {
	var all []sandbox.Sandbox
	q := store.Query{Limit: 1000, States: []sandbox.State{sandbox.Creating, sandbox.Running, sandbox.Sleeping, sandbox.Stopped}}
	for {
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

func (s *Service) repairAll(ctx context.Context, rows []sandbox.Sandbox, full bool, faults *faultList) {
	var g errgroup.Group
	g.SetLimit(reconcileAtOnce)
	for _, b := range rows {
		// Runs that are known have watchers, and once nothing is left from an
		// earlier daemon no stopped sandbox can be running.
		if !full && (b.State == sandbox.Stopped || b.State == sandbox.Sleeping || s.runOf(b.UID) != nil) {
			continue
		}
		g.Go(func() error {
			if err := s.repair(ctx, b); err != nil && ctx.Err() == nil {
				faults.add("sandbox "+string(b.ID), err)
			}
			return nil
		})
	}
	_ = g.Wait() // they return nil
}

// repair looks at one sandbox and does what decide says.
func (s *Service) repair(ctx context.Context, b sandbox.Sandbox) error {
	unlock, free := s.ids.TryLock(b.ID.Key())
	if !free {
		return nil // somebody is at it
	}
	defer unlock()
	b, err := s.cfg.Store.SandboxByUID(ctx, b.UID)
	if err != nil {
		return err
	}
	o := observation{state: b.State, attached: s.runOf(b.UID) != nil}
	var death driver.Death
	if b.State.Live() && b.State != sandbox.Creating && !o.attached {
		o.phase, death, err = s.inspect(ctx, b)
	}
	act := decide(o)
	if act != leaveIt && act != clearIt {
		s.log.Info("reconcile a sandbox", telemetry.KeySandbox, b.ID, telemetry.KeyUID, b.UID, "state", b.State, "phase", o.phase, "action", act.String())
	}
	owed, known := s.owed(b.UID)
	switch act {
	case adoptIt:
		return s.adopt(ctx, b)
	case abandonC:
		s.abandon(ctx, b, cmp.Or(owed, undone("interrupted by a restart of cubby")))
	case buryIt, settleIt:
		if act == buryIt && !known {
			return s.bury(ctx, b, death)
		}
		// A stop that was cut off is carried out before it is written down.
		if err := s.letGo(ctx, b); err != nil {
			return err
		}
		why := cmp.Or(owed, interrupted(""))
		_, err := s.stopped(ctx, b, why, event.Stopped{Reason: why.Reason})
		return err
	case clearIt:
		return s.letGo(ctx, b)
	case haltIt:
		if err := s.cfg.Driver.Stop(ctx, b.Handle, DefaultGrace); err != nil && !errors.Is(err, errs.NotFound) {
			return fmt.Errorf("stop what should not run: %w", err)
		}
		s.admission.give(b.UID)
		if err := s.unmount(ctx, b); err != nil {
			return fmt.Errorf("unmount the disk of what should not run: %w", err)
		}
	case leaveIt:
	}
	return err
}

// inspect asks the driver. The phase is empty when it does not know.
func (s *Service) inspect(ctx context.Context, b sandbox.Sandbox) (driver.Phase, driver.Death, error) {
	if b.Handle == nil {
		return driver.PhaseGone, driver.Death{Cause: driver.DeathRemoved}, nil
	}
	st, err := s.cfg.Driver.Inspect(ctx, b.Handle)
	if errors.Is(err, errs.NotFound) {
		return driver.PhaseGone, driver.Death{Cause: driver.DeathRemoved}, nil
	}
	if err != nil {
		return "", driver.Death{}, fmt.Errorf("inspect: %w", err)
	}
	if st.Phase == driver.PhaseGone {
		st.Death.Cause = driver.DeathRemoved
	}
	return st.Phase, st.Death, nil
}

// adopt takes over a sandbox that an earlier daemon started, with its execs.
func (s *Service) adopt(ctx context.Context, b sandbox.Sandbox) error {
	err := s.cfg.Driver.Adopt(ctx, b.Handle)
	if errors.Is(err, errs.NotFound) || errors.Is(err, errs.WrongState) {
		// It died between the two questions; the next look says why.
		s.reconcileSoon()
		return nil
	}
	if err != nil {
		return fmt.Errorf("adopt: %w", err)
	}
	if _, err := s.share(ctx, b.Tenant, b.UID); err != nil {
		// It has its own way to the disk already, and keeps it.
		s.log.Error("mount the disk of a tenant", telemetry.KeyUID, b.UID, telemetry.KeyErr, err)
	}
	r := s.attach(b)
	if err := s.resume(ctx, r); err != nil {
		return err
	}
	s.recorder.Note(ctx, event.New(b.UID, "", event.Adopted{}))
	return nil
}
