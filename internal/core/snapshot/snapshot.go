// Package snapshot keeps sandboxes as they are at one instant, and begins others
// from that: snapshots, forks, and sandboxes that are rolled back. A snapshot is a
// row, a disk of its own and, if it was asked for, what a driver keeps of the
// memory, all three by one uid, and the pin of its image. It outlives its sandbox.
//
// How a sandbox is made, counted and undone is lifecycle's matter; this package
// says what it begins from. It refuses sandboxes whose files are others' too.
package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/core/budget"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/history"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/keylock"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Config is what snapshots are made with. All fields are required.
type Config struct {
	Store  *store.Store
	Driver driver.Driver
	Disks  storage.Storage
	Images interface {
		Pin(ctx context.Context, digest string, owner sandbox.UID) error
		Unpin(ctx context.Context, digest string, owner sandbox.UID) error
	}
	Sandboxes *lifecycle.Sandboxes
	// Services is how the services of a sandbox stand, whose row may be behind.
	Services func(sandbox.Sandbox) map[string]sandbox.ServiceState
	Gate     *gate.Gate
	Scope    *scope.Scope
	Budget   budget.Budget // the zero one charges nothing
	Recorder *history.Recorder
	Log      *slog.Logger
	Bounds   Bounds
}

// Bounds are what one tenant may have of snapshots; 0 is no bound. Those of no
// tenant are the operator's and not bound.
type Bounds struct {
	Count int
	Bytes int64
}

// Snapshots is the snapshots of all tenants. Methods take the caller from their
// context; a snapshot of another tenant does not exist for it.
type Snapshots struct {
	cfg    Config
	quotas keylock.Locks // by tenant; held from the look at a quota to the row

	mu   sync.Mutex
	uses map[sandbox.UID]int // acts of this process on snapshots, or alone; guarded by mu
}

// New returns the snapshots that the store knows. It changes nothing.
func New(cfg Config) *Snapshots { return &Snapshots{cfg: cfg, uses: make(map[sandbox.UID]int)} }

// alone is the count of a snapshot that somebody removes.
const alone = -1

// use counts an act on a snapshot until done: until then it is neither removed nor
// taken for something that a crash left. WrongState while it is being removed.
func (s *Snapshots) use(uid sandbox.UID) (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uses[uid] == alone {
		return nil, errs.E(errs.WrongState, "the snapshot is just being removed").Hint("try again").RetryAfter(time.Second)
	}
	s.uses[uid]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.uses[uid]--; s.uses[uid] == 0 {
			delete(s.uses, uid)
		}
	}), nil
}

// useAlone is use for who removes the snapshot: false when it is in use.
func (s *Snapshots) useAlone(uid sandbox.UID) (done func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uses[uid] != 0 {
		return nil, false
	}
	s.uses[uid] = alone
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.uses, uid)
	}, true
}

// take finds a snapshot and uses it until done.
func (s *Snapshots) take(ctx context.Context, tenant *string, name string) (n sandbox.Snapshot, done func(), err error) {
	if n, err = s.find(ctx, tenant, name); err != nil {
		return n, nil, err
	}
	if done, err = s.use(n.UID); err != nil {
		return n, nil, err
	}
	// It may have been removed before that.
	if n, err = s.find(ctx, tenant, string(n.UID)); err != nil {
		done()
	}
	return n, done, err
}

// Request asks for a snapshot.
type Request struct {
	Source string // the id of a sandbox
	Name   string // "": its own id
	Memory bool   // beside the files
}

// Create keeps a sandbox, which goes on, and says how long it stood still. With
// memory it has to run, and one that sleeps is woken if its auto_wake allows that and
// nothing else refuses the snapshot. Kinds: Invalid, NotFound, WrongState, SharedFiles, Unsupported (memory of a container), Conflict (the
// name), OverQuota, Exhausted. After an error nothing is kept.
func (s *Snapshots) Create(ctx context.Context, r Request) (n sandbox.Snapshot, paused time.Duration, err error) {
	if r.Name != "" {
		if err := sandbox.ValidateSnapshotName(r.Name); err != nil {
			return n, 0, err
		}
	}
	var (
		b       sandbox.Sandbox
		k       driver.Snapshotter
		release func()
	)
	if r.Memory {
		b, k, release, err = s.holdAwake(ctx, r.Source, func(b sandbox.Sandbox) error { return s.mayNote(ctx, r.Name, b) })
	} else {
		b, release, err = s.hold(ctx, r.Source)
	}
	if err != nil {
		return n, 0, err
	}
	defer release()
	n = sandbox.Snapshot{
		UID: sandbox.NewUID(), Name: r.Name, Tenant: b.Tenant, Source: b.ID, SourceUID: b.UID, Spec: b.Spec,
		ImageDigest: b.ImageDigest, Driver: b.Driver, Memory: r.Memory,
	}
	n.Name = cmp.Or(n.Name, string(n.UID))
	n.Spec.KeptUntil = time.Time{}
	if n.Memory {
		n.Services = s.cfg.Services(b)
	}
	done, err := s.use(n.UID)
	if err != nil {
		return n, 0, err
	}
	defer done()
	if err := s.note(ctx, n, b); err != nil {
		return n, 0, err
	}
	defer func() {
		if err != nil {
			undo, cancel := gate.Detached(ctx)
			defer cancel()
			// It may be ready by now, and nothing is taken of one that somebody can find.
			undoErr := s.cfg.Store.RemoveSnapshot(undo, n.UID)
			if undoErr == nil {
				undoErr = s.clear(undo, n)
			}
			if undoErr != nil {
				s.cfg.Log.Error("undo a snapshot", telemetry.KeyUID, n.UID, telemetry.KeyErr, undoErr)
			}
			err = fmt.Errorf("keep sandbox %s: %w", b.ID, err)
		}
	}()
	if paused, err = s.keep(ctx, &n, b, k); err != nil {
		return n, paused, err
	}
	err = s.cfg.Store.ReadySnapshot(ctx, n.UID, n.DiskBytes, n.MemoryBytes, event.New(b.UID, scope.Actor(ctx), event.SnapshotCreate{
		ID: n.UID, Name: n.Name, Memory: n.Memory, Bytes: n.DiskBytes + n.MemoryBytes, Paused: paused.Milliseconds(),
	}))
	if err != nil {
		return n, paused, err
	}
	// It is kept, also when the caller has just gone away.
	made, err := s.cfg.Store.SnapshotByUID(context.WithoutCancel(ctx), n.UID)
	if err != nil {
		return n, paused, err
	}
	return made, paused, nil
}

// note writes the row of a snapshot when its tenant may have one more.
func (s *Snapshots) note(ctx context.Context, n sandbox.Snapshot, b sandbox.Sandbox) error {
	if n.Tenant == "" {
		return s.cfg.Store.CreateSnapshot(ctx, n)
	}
	unlock, err := s.quotas.Lock(ctx, n.Tenant)
	if err != nil {
		return err
	}
	defer unlock()
	// Until it is measured it counts as what its files take.
	if n.DiskBytes, err = s.mayHave(ctx, b); err != nil {
		return err
	}
	return s.cfg.Store.CreateSnapshot(ctx, n)
}

// mayHave refuses a snapshot that is more than the tenant of b may have, and returns
// what the files of b take.
func (s *Snapshots) mayHave(ctx context.Context, b sandbox.Sandbox) (bytes int64, err error) {
	has, err := s.cfg.Store.SnapshotUse(ctx, b.Tenant)
	if err != nil {
		return 0, err
	}
	disk, err := s.cfg.Disks.Usage(ctx, b.DiskUID)
	if err != nil {
		return 0, err
	}
	return disk.Allocated, decideQuota(s.cfg.Bounds, has, disk.Allocated)
}

// mayNote is the error that a note would have now.
func (s *Snapshots) mayNote(ctx context.Context, name string, b sandbox.Sandbox) error {
	if name != "" {
		_, err := s.cfg.Store.Snapshot(ctx, &b.Tenant, name)
		if err == nil {
			return errs.E(errs.Conflict, "a snapshot with the name %q exists already", name).Hint("remove it first, or choose another name")
		}
		if !errors.Is(err, errs.NotFound) {
			return err
		}
	}
	if b.Tenant == "" {
		return nil
	}
	_, err := s.mayHave(ctx, b)
	return err
}

// decideQuota is the rule of what a tenant may have of snapshots.
func decideQuota(most Bounds, has store.SnapshotUse, more int64) error {
	if most.Count > 0 && has.Count >= most.Count {
		return errs.E(errs.OverQuota, "the tenant has all %d snapshots that it may have", most.Count).
			Hint("remove one; the operator's bound is max-snapshots-per-tenant").RetryAfter(time.Second)
	}
	if most.Bytes > 0 && has.Bytes+more > most.Bytes {
		return errs.E(errs.OverQuota, "a snapshot of at least %d bytes is more than the tenant has left: its snapshots have %d of %d", more, has.Bytes, most.Bytes).
			Hint("remove one; the operator's bound is max-snapshot-bytes-per-tenant").RetryAfter(time.Second)
	}
	return nil
}

// keep copies what a snapshot has.
func (s *Snapshots) keep(ctx context.Context, n *sandbox.Snapshot, b sandbox.Sandbox, k driver.Snapshotter) (paused time.Duration, err error) {
	if err := s.cfg.Images.Pin(ctx, n.ImageDigest, n.UID); err != nil {
		return 0, err
	}
	if k == nil {
		paused, err = s.cfg.Disks.Clone(ctx, storage.Source{UID: b.DiskUID}, n.UID)
	} else {
		var kept driver.Snapshot
		kept, err = s.remember(ctx, k, b, n.UID, n.UID)
		paused, n.MemoryBytes = kept.Paused, kept.Bytes
	}
	if err != nil {
		return paused, err
	}
	use, err := s.cfg.Disks.Usage(ctx, n.UID)
	n.DiskBytes = use.Allocated
	return paused, err
}

// remember keeps the memory of a running sandbox, and its files of the same instant
// on a disk.
func (s *Snapshots) remember(ctx context.Context, k driver.Snapshotter, b sandbox.Sandbox, name, disk sandbox.UID) (kept driver.Snapshot, err error) {
	err = s.cfg.Sandboxes.Aside(ctx, b, func() error {
		kept, err = k.Snapshot(ctx, b.Handle, name, func(ctx context.Context) error {
			_, err := s.cfg.Disks.Clone(ctx, storage.Source{UID: b.DiskUID, Still: true}, disk)
			return err
		})
		return err
	})
	return kept, err
}

// find returns a snapshot that is ready, by its id or its name.
func (s *Snapshots) find(ctx context.Context, tenant *string, name string) (sandbox.Snapshot, error) {
	uid, err := sandbox.ParseUID(name)
	if err != nil {
		if err := sandbox.ValidateName("snapshot", name); err != nil {
			return sandbox.Snapshot{}, err
		}
		return s.cfg.Store.Snapshot(ctx, tenant, name)
	}
	n, err := s.cfg.Store.SnapshotByUID(ctx, uid)
	if err != nil {
		return n, err
	}
	if n.State != sandbox.SnapshotReady || tenant != nil && n.Tenant != *tenant {
		return sandbox.Snapshot{}, errs.E(errs.NotFound, "no such snapshot")
	}
	return n, nil
}

// Get returns a snapshot by its id or its name.
func (s *Snapshots) Get(ctx context.Context, name string) (sandbox.Snapshot, error) {
	if err := s.cfg.Gate.Wait(ctx); err != nil {
		return sandbox.Snapshot{}, err
	}
	return s.find(ctx, scope.Whose(ctx, ""), name)
}

// Query selects snapshots that the caller sees; the zero value selects all.
type Query struct {
	Tenant string // "": any
	Source string // the id that their sandbox had; "": any
	Cursor string // Next of the page before
	Limit  int    // 0: 100, at most 1000
}

// List returns snapshots, the newest first, and the cursor of the next page, "" on
// the last.
func (s *Snapshots) List(ctx context.Context, q Query) (page []sandbox.Snapshot, next string, err error) {
	if err := s.cfg.Gate.Wait(ctx); err != nil {
		return nil, "", err
	}
	if err := scope.MayName(ctx, q.Tenant); err != nil {
		return nil, "", err
	}
	var before sandbox.UID
	if q.Cursor != "" {
		if before, err = sandbox.ParseUID(q.Cursor); err != nil {
			return nil, "", errs.E(errs.Invalid, "cursor: not one of this list").Because(err)
		}
	}
	done, err := s.cfg.Budget.Turn(ctx)
	if err != nil {
		return nil, "", err
	}
	defer done()
	page, more, err := s.cfg.Store.Snapshots(ctx, store.SnapshotQuery{
		Tenant: scope.Whose(ctx, q.Tenant), Source: sandbox.ID(q.Source), Before: before, Limit: q.Limit,
	})
	if err != nil {
		return nil, "", err
	}
	if more {
		next = string(page[len(page)-1].UID)
	}
	var bytes int64
	for _, n := range page {
		bytes += n.Spec.Bytes()
	}
	return page, next, s.cfg.Budget.ChargeList(ctx, bytes)
}

// Remove deletes a snapshot. What began from it goes on. NotFound when there is
// none, WrongState while a sandbox is just being made from it, or goes back to it.
func (s *Snapshots) Remove(ctx context.Context, name string) error {
	leave, err := s.cfg.Gate.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	n, err := s.find(ctx, scope.Whose(ctx, ""), name)
	if err != nil {
		return err
	}
	done, ok := s.useAlone(n.UID)
	if !ok {
		return errs.E(errs.WrongState, "a sandbox is just being made from the snapshot, or goes back to it, or it is being removed already").Hint("try again").RetryAfter(time.Second)
	}
	defer done()
	ctx, cancel := gate.Detached(ctx)
	defer cancel()
	if err := s.cfg.Store.RemoveSnapshot(ctx, n.UID, event.New(n.SourceUID, scope.Actor(ctx), event.SnapshotRemove{ID: n.UID, Name: n.Name})); err != nil {
		return err
	}
	// It is gone for everybody. What cannot be deleted now the next reconciliation
	// deletes.
	if err := s.clear(ctx, n); err != nil {
		s.cfg.Log.Error("remove a snapshot", telemetry.KeyUID, n.UID, telemetry.KeyErr, err)
	}
	return nil
}

// clear deletes all that there is of a snapshot that is not ready, and its row at
// last.
func (s *Snapshots) clear(ctx context.Context, n sandbox.Snapshot) error {
	if k, ok := driver.As[driver.Snapshotter](s.cfg.Driver); ok && n.Memory {
		if err := driver.Serves(s.cfg.Driver, n.Driver); err != nil {
			return err
		}
		if err := k.RemoveSnapshot(ctx, n.UID); err != nil {
			return err
		}
	}
	if _, err := s.cfg.Disks.Remove(ctx, n.UID); err != nil {
		return err
	}
	if err := s.cfg.Images.Unpin(ctx, n.ImageDigest, n.UID); err != nil {
		return err
	}
	err := s.cfg.Store.DropSnapshot(ctx, n.UID)
	if errors.Is(err, errs.NotFound) {
		err = nil
	}
	return err
}

// Reconcile deletes what acts left that were cut off: snapshots that are not
// ready, and what a driver keeps for nobody.
func (s *Snapshots) Reconcile(ctx context.Context) error {
	unready, err := s.cfg.Store.UnreadySnapshots(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, n := range unready {
		failed = append(failed, s.clearUnready(ctx, n.UID))
	}
	return errors.Join(append(failed, s.sweep(ctx))...)
}

// clearUnready is clear of a snapshot that no act has under way. It may have become
// ready since it was listed.
func (s *Snapshots) clearUnready(ctx context.Context, uid sandbox.UID) error {
	done, ok := s.useAlone(uid)
	if !ok {
		return nil
	}
	defer done()
	n, err := s.cfg.Store.SnapshotByUID(ctx, uid)
	if errors.Is(err, errs.NotFound) {
		return nil
	}
	if err != nil || n.State == sandbox.SnapshotReady {
		return err
	}
	s.cfg.Log.Info("delete what is left of a snapshot", telemetry.KeyUID, uid, "state", n.State)
	return s.clear(ctx, n)
}

// sweep deletes what the driver keeps for no snapshot and no fork.
func (s *Snapshots) sweep(ctx context.Context) error {
	k, ok := driver.As[driver.Snapshotter](s.cfg.Driver)
	if !ok {
		return nil
	}
	kept, err := k.Snapshots(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, uid := range kept {
		wanted, err := s.wanted(ctx, uid)
		if err == nil && !wanted {
			s.cfg.Log.Info("delete the memory of no snapshot", telemetry.KeyUID, uid)
			err = k.RemoveSnapshot(ctx, uid)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// wanted reports whether somebody needs what the driver keeps under a uid: a
// snapshot, or a fork, which uses the uid of its first sandbox until all of them
// run.
func (s *Snapshots) wanted(ctx context.Context, uid sandbox.UID) (bool, error) {
	_, err := s.cfg.Store.SnapshotByUID(ctx, uid)
	if !errors.Is(err, errs.NotFound) {
		return true, err
	}
	b, err := s.cfg.Store.SandboxByUID(ctx, uid)
	if errors.Is(err, errs.NotFound) {
		return false, nil
	}
	return b.State == sandbox.Creating, err
}
