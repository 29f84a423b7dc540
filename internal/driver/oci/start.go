package oci

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/agent"
	"github.com/cubbyhq/cubby/internal/driver/oci/memory"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// startLimit bounds a start whose caller set no deadline of its own, and undoLimit
// what takes down what came of one that failed.
const (
	startLimit = 60 * time.Second
	undoLimit  = 30 * time.Second
)

// Start implements driver.Driver.
func (d *Driver) Start(ctx context.Context, h driver.Handle) (err error) {
	n, err := d.places.parse(h)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	b := d.box(n.UID)
	if err := d.finishStop(ctx, h, b); err != nil {
		return err
	}

	d.mu.Lock()
	r := d.runs[n.UID]
	d.mu.Unlock()
	if r != nil && !r.ended() {
		if err := d.greet(ctx, r); err == nil || !r.ended() { // else it was ending, as of a destruction that was cut off
			return err
		}
	}
	if r == nil {
		// One that an earlier daemon started is taken over.
		switch err := d.Adopt(ctx, h); {
		case err == nil:
			return d.Start(ctx, h)
		case !errors.Is(err, errs.WrongState) && !errors.Is(err, errs.NotFound):
			return err
		}
	}
	if err := d.clear(ctx, n.UID); err != nil {
		return err
	}
	if err := d.furnish(&n, true); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			d.undoRun(ctx, n.UID)
		}
	}()

	userns, err := d.userNamespace(&n)
	if err != nil {
		return err
	}
	if userns != nil {
		defer userns.Close()
	}
	// From here on the files change, and a memory of before is none any more.
	if err := b.memory().Forget(); err != nil {
		return err
	}
	if err := b.setPrograms(n); err != nil {
		return err
	}
	return d.begin(ctx, n, record{Secret: rand.Text(), HostID: d.hostID, IDBase: n.IDBase}, userns, nil)
}

// finishStop carries a stop out that was cut off: the run that it left answers and takes
// no commands any more, and its system files may not be saved yet.
func (d *Driver) finishStop(ctx context.Context, h driver.Handle, b box) error {
	rec, found, err := b.record()
	if err != nil || !found || !rec.Stopping {
		return err
	}
	return d.Stop(ctx, h, 0)
}

// begin makes the run that a record speaks of, out of a memory unless that is nil,
// and returns when its agent answers. What came of one that failed is the caller's
// to clear.
func (d *Driver) begin(ctx context.Context, n note, rec record, userns *os.File, from *memory.Memory) error {
	b := d.box(n.UID)
	rec.Paused = from != nil
	if err := b.setRecord(rec); err != nil {
		return err
	}
	place, err := d.takePlace(n)
	if err != nil {
		return err
	}
	defer place.leave()
	l, err := d.listen(n, rec)
	if err != nil {
		return err
	}
	p, err := d.launch(ctx, n, rec, userns, place, from)
	if err != nil {
		_ = l.Close()
		return err
	}
	r := hold(p, l)
	d.mu.Lock()
	d.runs[n.UID] = r
	d.mu.Unlock()
	d.guardLocks(n, p.PID)
	rec.PID, rec.StartTime = p.PID, p.Start
	if err := b.setRecord(rec); err != nil {
		return err
	}
	if rec.Paused {
		return d.resumeTimers(ctx, b, r, rec)
	}
	return d.greet(ctx, r)
}

// userNamespace returns the namespace of a container's run and notes its range;
// nil where it has none.
func (d *Driver) userNamespace(n *note) (*os.File, error) {
	if n.IDBase == 0 {
		return nil, nil
	}
	ids, err := d.namespaces.Take(n.UID)
	if err != nil {
		return nil, fmt.Errorf("user ids of the container: %w", err)
	}
	n.IDBase = ids.Base
	return ids.File, nil
}

// greet returns when the agent answers.
func (d *Driver) greet(ctx context.Context, r *run) error {
	return d.reach(ctx, r, func(ctx context.Context, a agent.Client) error { return a.Hello(ctx) })
}

// rouse is greet for an agent whose memory was kept, or nearly: its time limits
// go on.
func (d *Driver) rouse(ctx context.Context, r *run) error {
	return d.reach(ctx, r, func(ctx context.Context, a agent.Client) error { return a.ResumeTimers(ctx) })
}

// reach returns when the agent has answered a question.
func (d *Driver) reach(ctx context.Context, r *run, ask func(context.Context, agent.Client) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-r.dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := r.line().Wait(ctx)
	if err == nil {
		err = ask(ctx, agent.New(r.line().Dial, &r.agent))
	}
	if err == nil {
		return nil
	}
	select {
	case <-r.dead:
		return errs.E(errs.Unavailable, "the sandbox ended before its agent answered").Because(err)
	case <-time.After(time.Second): // the end of a connection is seen before that of the process
		return errs.E(errs.Unavailable, "the sandbox's agent does not answer").Because(err)
	}
}

// furnish puts what a run needs where it is missing. One that begins anew gets the
// programs of today.
func (d *Driver) furnish(n *note, renew bool) error {
	if err := d.box(n.UID).lay(*n, &d.authorities); err != nil {
		return err
	}
	if err := d.progs.provide(n, renew); err != nil {
		return err
	}
	if _, err := os.Stat(n.Rootfs); err != nil {
		return errs.E(errs.Unavailable, "the sandbox's image is gone").Because(err)
	}
	return nil
}

// undoRun takes down what a start or a wake began that failed.
func (d *Driver) undoRun(ctx context.Context, uid sandbox.UID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	if err := d.clear(ctx, uid); err != nil {
		d.log.Error("a run that failed to begin was not undone", "box", uid, "err", err)
	}
}
