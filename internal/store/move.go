package store

import (
	"context"
	"fmt"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/column"
)

// Change is what changes together with a state.
type Change struct {
	At          time.Time   // of the move; zero is now
	Why         sandbox.Why // replaces the old one
	Handle      []byte      // nil keeps the old one, empty clears it
	ImageDigest string      // "" keeps the old one
	DiskUID     sandbox.UID
	// Services, when not nil, are the states of services that go on.
	Services map[string]sandbox.ServiceState
	// KeepDisk, with a move to Destroyed or Failed, keeps the sandbox's disk
	// for the next sandbox with its id: see [Store.TakeKeptDisk].
	KeepDisk bool
	// Claim, when not nil, is completed with ClaimResult, "" meaning the UID.
	Claim       *Claim
	ClaimResult string
	Events      []sandbox.Event
}

// Move takes a sandbox to another state, with everything in the Change, in
// one durable transaction, and returns it as it is then. It is WrongState when
// State.CanBecome forbids the move, NotFound when there is no such sandbox, and
// Internal when Why does not explain the state. It sets StartedAt, StoppedAt and DestroyedAt. A sandbox that ends
// (Failed, Destroyed) loses its handle, its env values, its exports and, when
// destroyed, its labels: nothing can run it again.
func (s *Store) Move(ctx context.Context, uid sandbox.UID, to sandbox.State, c Change) (b sandbox.Sandbox, err error) {
	c.At = orTime(c.At, s.now())
	err = s.update(ctx, durable, func(t *tx) error {
		if b, err = t.seal.scanSandbox(t.row(selectSandboxByUID, uid)); err != nil {
			return err
		}
		b, err = t.move(b, to, c)
		return err
	})
	if err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("move sandbox %s to %s: %w", uid, to, err)
	}
	return b, nil
}

// Moving is one of several moves.
type Moving struct {
	UID    sandbox.UID
	To     sandbox.State
	Change Change
}

// MoveAll is Move of several sandboxes: all of them or, after an error, none.
func (s *Store) MoveAll(ctx context.Context, moves []Moving) (moved []sandbox.Sandbox, err error) {
	err = s.update(ctx, durable, func(t *tx) error {
		moved = make([]sandbox.Sandbox, len(moves))
		for i, m := range moves {
			m.Change.At = orTime(m.Change.At, s.now())
			b, err := t.seal.scanSandbox(t.row(selectSandboxByUID, m.UID))
			if err == nil {
				moved[i], err = t.move(b, m.To, m.Change)
			}
			if err != nil {
				return fmt.Errorf("move sandbox %s to %s: %w", m.UID, m.To, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return moved, nil
}

// Restate changes why a stopped sandbox is stopped, and with Handle what runs it, and
// adds Events; the rest of the Change is not read. WrongState when it is not stopped.
func (s *Store) Restate(ctx context.Context, uid sandbox.UID, c Change) (b sandbox.Sandbox, err error) {
	err = s.update(ctx, durable, func(t *tx) error {
		if b, err = t.seal.scanSandbox(t.row(selectSandboxByUID, uid)); err != nil {
			return err
		}
		if b.State != sandbox.Stopped {
			return errs.E(errs.WrongState, "the sandbox is %s", b.State)
		}
		if c.Why != b.Why() { // one of before there were causes keeps what it has
			if err := explained(c.Why, sandbox.Stopped); err != nil {
				return err
			}
		}
		b.Cause, b.Reason, b.UpdatedAt = c.Why.Cause, c.Why.Reason, column.FromMicros(column.Micros(s.now()))
		if c.Handle != nil {
			b.Handle = c.Handle
		}
		if len(b.Handle) == 0 {
			b.Handle = nil
		}
		_, err := t.exec(`UPDATE sandboxes SET cause = $1, reason = $2, handle = $3, updated_at = $4 WHERE uid = $5`,
			b.Cause, b.Reason, t.seal.handleColumn(uid, b.Handle), column.Micros(b.UpdatedAt), uid)
		if err != nil {
			return err
		}
		return t.appendEvents(c.Events, b.UpdatedAt)
	})
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	return b, nil
}

// explained refuses a state that nobody would know the reason of.
func explained(why sandbox.Why, s sandbox.State) error {
	if !why.Explains(s) {
		return errs.E(errs.Internal, "a sandbox does not become %s without a reason (cause %q)", s, why.Cause)
	}
	return nil
}

// move is the only statement that changes a state.
func (t *tx) move(b sandbox.Sandbox, to sandbox.State, c Change) (sandbox.Sandbox, error) {
	if !b.State.CanBecome(to) {
		return b, errs.E(errs.WrongState, "a sandbox that is %s cannot become %s", b.State, to)
	}
	if err := explained(c.Why, to); err != nil {
		return b, err
	}
	at := column.FromMicros(column.Micros(c.At))
	from := b.State
	b.State, b.Cause, b.Reason, b.UpdatedAt = to, c.Why.Cause, c.Why.Reason, at
	switch to {
	case sandbox.Running:
		b.StartedAt, b.LastActiveAt = at, at
	case sandbox.Stopped, sandbox.Sleeping:
		b.StoppedAt = at
	case sandbox.Destroyed:
		b.DestroyedAt = at
	}
	if c.Handle != nil {
		b.Handle = c.Handle
	}
	if c.ImageDigest != "" {
		b.ImageDigest = c.ImageDigest
	}
	if c.DiskUID != "" {
		b.DiskUID = c.DiskUID
	}
	if c.Services != nil {
		b.Services = c.Services
	}
	if !to.Live() {
		b.Handle, b.Spec.Env = nil, nil
		b.Spec.Services = withoutEnv(b.Spec.Services)
	}
	if to == sandbox.Stopped || !to.Live() {
		b.Services = nil
	}
	if len(b.Handle) == 0 {
		b.Handle = nil
	}
	spec, env, declared, err := t.seal.specColumns(b)
	if err != nil {
		return b, err
	}
	n, err := t.exec(`UPDATE sandboxes SET state = $1, reason = $2, handle = $3, image_digest = $4, disk_uid = $5,
			spec = $6, env = $7, updated_at = $8, started_at = $9, stopped_at = $10, destroyed_at = $11, cause = $12, services = $13
			WHERE uid = $14 AND state = $15`,
		b.State, b.Reason, t.seal.handleColumn(b.UID, b.Handle), b.ImageDigest, b.DiskUID,
		spec, env, column.Micros(at), column.Micros(b.StartedAt), column.Micros(b.StoppedAt), column.Micros(b.DestroyedAt), b.Cause, declared, b.UID, from)
	if err != nil {
		return b, err
	}
	if n == 0 { // in a database with several writers
		return b, errs.E(errs.Conflict, "the sandbox changed at the same time").RetryAfter(time.Second)
	}
	switch to {
	case sandbox.Running:
		err = t.touch(b.UID, at)
	case sandbox.Destroyed:
		err = t.setLabels(b.UID, nil)
	}
	if err == nil && !to.Live() {
		err = t.dropExports(b.UID)
	}
	if err != nil {
		return b, err
	}
	if c.KeepDisk && !to.Live() {
		if err := t.keepDisk(KeptDisk{
			IDKey: b.ID.Key(), Tenant: b.Tenant, External: b.Spec.External, DiskUID: b.DiskUID, At: at,
		}); err != nil {
			return b, err
		}
	}
	if c.Claim != nil {
		result := c.ClaimResult
		if result == "" {
			result = string(b.UID)
		}
		if err := t.completeClaim(c.Claim, result); err != nil {
			return b, err
		}
	}
	return b, t.appendEvents(c.Events, at)
}
