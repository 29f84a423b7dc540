package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/archive"
	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/pool"
	"github.com/cubbyhq/cubby/internal/core/program"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/core/threads"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/egress"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/keylock"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/store"
)

// CreateRequest asks for a sandbox.
type CreateRequest struct {
	ID string // "" generates one
	// Tenant is whose sandbox it is; "" is the caller's own, if any.
	Tenant string `json:",omitempty"`
	// SharedFiles says whether it uses its tenant's disk; nil: if Tenant names
	// one. Spec.SharedFiles is not read.
	SharedFiles *bool `json:",omitempty"`
	// Interface is the way it came by.
	Interface admission.Interface `json:",omitempty"`
	// Spec says what it shall be; zero fields take the defaults. ExecTimeout,
	// IdleTimeout and MaxLifetime are read from the pointers below, because 0
	// has a meaning there; KeptUntil is a keepalive's to set.
	Spec        sandbox.Spec
	ExecTimeout *time.Duration // nil: the default; 0: none
	IdleTimeout *time.Duration // nil: the default; 0: never idle
	MaxLifetime *time.Duration // nil: the default; 0: none
	// Prefer names the image of a sandbox that asks for none, where there is one of
	// this name; else it has the default.
	Prefer string `json:",omitempty"`
	// Restore names an archive of its tenant's whose files the sandbox begins
	// with.
	Restore string
	// Snapshot names a snapshot that the sandbox begins from, by its id or name.
	Snapshot string `json:",omitempty"`
	// IdempotencyKey makes a repeat of the same request return the first
	// one's sandbox.
	IdempotencyKey string
	// Progress, when not nil, hears what the installation of the spec's
	// dependencies prints, in the goroutine of the create.
	Progress func(sandbox.Output) `json:"-"`

	// Work, when not nil, is done in the sandbox while it is creating; then that is
	// destroyed, and Create returns the error. The sandbox is never one of the pool.
	Work func(ctx context.Context, r *live.Run, b sandbox.Sandbox) error `json:"-"`
}

// Create makes a sandbox and returns when commands can run in it. When a step
// fails everything before it is undone and the row ends failed with the
// reason. A spec with dependencies has them installed first, as an exec whose
// output stays; when ctx ends meanwhile the create is undone. Kinds: Invalid,
// NotFound (image), Conflict (the id is in use, or its
// kept disk belongs to somebody else), Exhausted (no room; with RetryAfter),
// Unsupported (isolation), Unavailable.
func (s *Sandboxes) Create(ctx context.Context, r CreateRequest) (sandbox.Sandbox, error) {
	return s.creator.createOnce(ctx, r)
}

// creator makes sandboxes.
type creator struct {
	*acts
	limits  map[admission.Interface]sandbox.Limits
	threads *threads.Threads
	quotas  keylock.Locks // by tenant; held while a sandbox is counted and stored
}

// createClaimed is create for a request that is no repeat. When it fails the claim
// is the caller's to release.
func (s *creator) createClaimed(ctx context.Context, r CreateRequest, claim *store.Claim) (b sandbox.Sandbox, err error) {
	var o *Origin
	if r.Snapshot != "" {
		if o, err = s.origin(ctx, r); err != nil {
			return sandbox.Sandbox{}, err
		}
		defer o.Done()
	}
	b, err = s.plan(ctx, r, o)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	created := sync.OnceFunc(s.pool.Creating())
	defer created()
	began := time.Now()
	defer func() {
		result := "ok"
		if err != nil {
			result = string(errs.KindOf(err))
		}
		s.cfg.On.Create(string(b.Spec.Isolation), result, time.Since(began))
	}()
	made, err := s.createFrom(ctx, b, r, making{diskBytes: r.Spec.Limits.DiskBytes, claim: claim, progress: r.Progress, origin: o, work: r.Work, created: created})
	if err != nil {
		return b, err
	}
	return made, nil
}

// origin is the snapshot that a request names.
func (s *creator) origin(ctx context.Context, r CreateRequest) (*Origin, error) {
	if err := scope.MayName(ctx, r.Tenant); err != nil {
		return nil, err
	}
	if r.Restore != "" {
		return nil, errs.E(errs.Invalid, "snapshot: the files are to come from an archive too").Hint("give restore or snapshot")
	}
	if r.SharedFiles != nil && *r.SharedFiles {
		return nil, errs.E(errs.SharedFiles, "shared_files: the snapshot has files of its own").Hint("leave shared_files out")
	}
	o, err := s.cfg.Origin(ctx, cmp.Or(r.Tenant, auth.From(ctx).Tenant), r.Snapshot)
	return &o, err
}

// plan turns a request into the sandbox that shall be, and refuses what can
// never be. It changes nothing.
func (s *creator) plan(ctx context.Context, r CreateRequest, o *Origin) (sandbox.Sandbox, error) {
	if err := scope.MayName(ctx, r.Tenant); err != nil {
		return sandbox.Sandbox{}, err
	}
	b := sandbox.Sandbox{UID: sandbox.NewUID(), ID: sandbox.NewID(), Tenant: cmp.Or(r.Tenant, auth.From(ctx).Tenant)}
	if r.ID != "" {
		var err error
		if b.ID, err = sandbox.ParseID(r.ID); err != nil {
			return b, err
		}
	}
	r.Spec.SharedFiles = r.Tenant != "" && o == nil
	if r.SharedFiles != nil {
		r.Spec.SharedFiles = *r.SharedFiles
	}
	if r.Spec.SharedFiles && b.Tenant == "" {
		return b, errs.E(errs.Invalid, "shared_files: the sandbox has no tenant to share files with").Hint("give a tenant_id, or leave shared_files out")
	}
	r.Spec.ExecTimeout, r.Spec.IdleTimeout, r.Spec.MaxLifetime, r.Spec.KeptUntil = 0, 0, 0, time.Time{}
	var before []sandbox.Service
	if o != nil {
		var err error
		if r.Spec, err = o.Snapshot.SpecOf(r.Spec); err != nil {
			return b, err
		}
		b.ImageDigest = o.Snapshot.ImageDigest
		b.Services, before = o.services(), o.Snapshot.Spec.Services
	}
	if r.Prefer != "" && r.Spec.Image == "" && r.Spec.Runtime == "" {
		switch _, err := s.cfg.Images.Resolve(ctx, r.Prefer); {
		case err == nil:
			r.Spec.Image = r.Prefer
		case !errors.Is(err, errs.NotFound):
			return b, err
		}
	}
	d := s.cfg.Settings.Defaults
	if r.Spec.Thread != "" {
		d = s.cfg.Settings.Threads.Defaults(d)
	}
	if limits, ok := s.limits[r.Interface]; ok {
		d.Limits = limits
	}
	b.Spec = r.Spec.WithDefaults(d)
	if r.ExecTimeout != nil {
		b.Spec.ExecTimeout = *r.ExecTimeout
	}
	if r.IdleTimeout != nil {
		b.Spec.IdleTimeout = *r.IdleTimeout
	}
	if r.MaxLifetime != nil {
		b.Spec.MaxLifetime = *r.MaxLifetime
	}
	if err := cmp.Or(b.Spec.Validate(), egress.CheckPolicy(b.Spec.Network)); err != nil {
		return b, err
	}
	b.Spec.Services = sandbox.Revise(before, b.Spec.Services)
	if len(b.Spec.Dependencies) > 0 && o == nil {
		if _, err := s.cfg.Packages.Spec(b.Spec, program.PackagesRequest{Runtime: b.Spec.Runtime, Dependencies: b.Spec.Dependencies}); err != nil {
			return b, err
		}
	}
	if err := s.cfg.Settings.Host.Fits(b.Spec.Limits); err != nil {
		return b, err
	}
	b.Spec.Limits = s.cfg.Settings.Host.Clamp(b.Spec.Limits, b.Spec.Isolation)
	return b, s.supports(b.Spec.Isolation)
}

// making is what a create needs beside the sandbox that shall be.
type making struct {
	diskBytes int64             // that the caller asked for; 0: a default
	from      *archive.Manifest // the files to begin with; nil: none
	origin    *Origin           // nil: none
	claim     *store.Claim      // nil: none
	restored  func()            // ends the turn that from has
	progress  func(sandbox.Output)
	booted    func()                                                  // ends the boot for those who wait for their turn
	work      func(context.Context, *live.Run, sandbox.Sandbox) error // nil: the sandbox stays
	created   func()                                                  // ends the create for the pool
}

// filesFrom is the field of the request that says where the files come from; "" is
// nowhere.
func (m making) filesFrom() string {
	switch {
	case m.from != nil:
		return "restore"
	case m.origin != nil:
		return "snapshot"
	}
	return ""
}

// snapshot is the id of the one that it begins from; "" is none.
func (m making) snapshot() string {
	if m.origin == nil {
		return ""
	}
	return string(m.origin.Snapshot.UID)
}

// createFrom is create with the archive that the request names, if any.
func (s *creator) createFrom(ctx context.Context, b sandbox.Sandbox, r CreateRequest, m making) (sandbox.Sandbox, error) {
	if r.Restore != "" {
		from, err := s.cfg.Archives.Get(ctx, b.Tenant, r.Restore)
		if err != nil {
			return b, err
		}
		if err := mayUnpack(b, from); err != nil {
			return b, err
		}
		m.from = &from
		done, err := s.cfg.Archives.Turn(ctx, b.Tenant)
		if err != nil {
			return b, err
		}
		m.restored = sync.OnceFunc(done)
		defer m.restored()
	}
	return s.create(ctx, b, m)
}

// create carries a plan out, or undoes what it did of it.
func (s *creator) create(ctx context.Context, b sandbox.Sandbox, m making) (sandbox.Sandbox, error) {
	// A create of an id that is in use is refused at once, not when the
	// present holder lets go of the lock.
	if err := s.vacant(ctx, b); err != nil {
		return b, err
	}
	img, err := s.cfg.Images.Resolve(ctx, cmp.Or(b.ImageDigest, b.Spec.Image))
	if err != nil {
		return b, err
	}
	b.ImageDigest = img.Digest

	unlock, err := s.ids.Lock(ctx, b.ID.Key())
	if err != nil {
		return b, err
	}
	defer unlock()
	if err := s.vacant(ctx, b); err != nil {
		return b, err
	}
	if field := m.filesFrom(); field != "" {
		if _, kept, err := s.keptDisk(ctx, b.ID); err != nil || kept {
			return b, cmp.Or(err, diskIsKept(field))
		}
	}
	kept, ok, err := s.cfg.Store.TakeKeptDisk(ctx, b.ID.Key(), b.Tenant, b.Spec.External)
	if err != nil {
		return b, err
	}
	b.DiskUID = b.UID
	if ok {
		b.DiskUID = kept
		if err := s.sizeOfKept(ctx, &b, m.diskBytes); err != nil {
			return b, err
		}
	}
	yielding{s.acts}.freePlace(ctx, b)
	empty := !ok && m.from == nil && m.origin == nil && m.work == nil
	if empty {
		if made, ok, err := s.createWarm(ctx, b, img, m.claim); ok || err != nil {
			return made, err
		}
	}
	leave, err := s.seat(ctx, b)
	if err != nil {
		return b, err
	}
	defer leave()
	if m.booted, err = s.admission.Take(ctx, b); err != nil {
		return b, err
	}
	defer m.booted()
	if empty {
		s.pool.Follow(pool.WantOf(b, img, s.cfg.Settings.Defaults.Limits))
	}

	b.Driver = s.cfg.Driver.Name()
	if err := s.cfg.Store.CreateSandbox(ctx, b, event.New(b.UID, scope.Actor(ctx), event.Created{
		ID: b.ID, Image: b.Spec.Image, Isolation: b.Spec.Isolation, Start: event.Cold, Snapshot: m.snapshot(),
	})); err != nil {
		s.admission.Give(b.UID)
		return b, err
	}
	leave()
	made, err := s.build(ctx, &b, img, m)
	if err != nil {
		undo, cancel := gate.Detached(ctx)
		defer cancel()
		s.abandon(undo, b, undone(errs.Public(err).Message))
		return b, fmt.Errorf("create sandbox %s: %w", b.ID, err)
	}
	if m.work != nil {
		m.created()
		return made, s.lend(ctx, made, m.work)
	}
	s.lifetimes.note(made, s.cfg.Now(), s.cfg.Uptime())
	if r := s.cfg.Live.Of(made.UID); r == nil {
		s.attach(made)
	} else {
		s.cfg.On.Run(r, made)
	}
	return s.upToDate(made), nil
}

// vacant refuses an id that a live sandbox has.
func (s *creator) vacant(ctx context.Context, b sandbox.Sandbox) error {
	holder, err := s.cfg.Store.Sandbox(ctx, b.ID)
	switch {
	case errors.Is(err, errs.NotFound):
		return nil
	case err != nil:
		return err
	case holder.State.Live():
		return errs.E(errs.Conflict, "a sandbox with the id %q exists already", b.ID).
			Hint("destroy it first, or choose another id; ids that differ only in case count as the same")
	}
	return nil
}

// build takes the steps from the row to a sandbox that runs. The handle is in
// b as soon as there is one.
func (s *creator) build(ctx context.Context, b *sandbox.Sandbox, img image.Image, m making) (sandbox.Sandbox, error) {
	if err := s.cfg.Images.Pin(ctx, img.Digest, b.UID); err != nil {
		return *b, err
	}
	if m.origin != nil {
		if err := m.origin.Files(ctx, b.UID); err != nil {
			return *b, err
		}
		if err := s.beginFrom(ctx, b, img, *m.origin); err != nil {
			return *b, err
		}
		return s.running(ctx, *b, m)
	}
	if b.DiskUID == b.UID { // else it takes one over
		if err := s.cfg.Disks.Create(ctx, b.UID, storage.Own, admission.DiskBytes(b.Spec.Limits, s.cfg.Settings.JournalBytes)); err != nil {
			return *b, err
		}
	}
	disks, err := s.tenants.Attach(ctx, *b)
	if err != nil {
		return *b, err
	}
	if m.from != nil {
		if err := s.restore(ctx, *b, *m.from); err != nil {
			return *b, err
		}
		m.restored()
	}
	if err := s.beginCold(ctx, b, s.driverSpec(*b, img, disks)); err != nil {
		return *b, err
	}
	if m.work != nil {
		m.booted()
		return *b, nil
	}
	if len(b.Spec.Dependencies) > 0 {
		m.booted()
		if err := s.cfg.Packages.Provide(ctx, s.attach(*b), *b, m.progress); err != nil {
			return *b, err
		}
	}
	return s.running(ctx, *b, m)
}

// beginCold makes a sandbox run that has its files and never ran with them. The
// handle is in b as soon as there is one.
func (s *acts) beginCold(ctx context.Context, b *sandbox.Sandbox, spec driver.Spec) error {
	handle, err := s.cfg.Driver.Create(ctx, spec)
	if err != nil {
		return err
	}
	b.Handle = handle
	if err := s.cfg.Store.SetHandle(ctx, b.UID, handle); err != nil {
		return err
	}
	return s.cfg.Driver.Start(ctx, handle)
}

// running notes that a sandbox that was being made runs.
func (s *creator) running(ctx context.Context, b sandbox.Sandbox, m making) (sandbox.Sandbox, error) {
	answer, err := answerOf(b)
	if err != nil {
		return b, err
	}
	moved, err := s.cfg.Store.Move(ctx, b.UID, sandbox.Running, store.Change{
		ImageDigest: b.ImageDigest, Claim: m.claim, ClaimResult: answer,
		Events: []sandbox.Event{event.New(b.UID, scope.Actor(ctx), event.Started{})},
	})
	moved.Warnings = b.Warnings
	return moved, err
}

// sizeOfKept gives b the limit of the disk that it takes over, whose size
// stays: it is a Conflict to ask for another.
func (s *creator) sizeOfKept(ctx context.Context, b *sandbox.Sandbox, asked int64) error {
	use, err := s.cfg.Disks.Usage(ctx, b.DiskUID)
	if err != nil {
		return err
	}
	if asked != 0 && admission.DiskBytes(b.Spec.Limits, s.cfg.Settings.JournalBytes) == use.Bytes {
		return nil
	}
	limit := admission.LimitOfDisk(use.Bytes, s.cfg.Settings.JournalBytes)
	if asked != 0 {
		return errs.E(errs.Conflict, "limits.disk_bytes: the disk kept under this id has %d, and keeps that size", limit).
			Hint("leave disk_bytes out, or purge the sandbox to begin with a new disk")
	}
	b.Spec.Limits.DiskBytes = limit
	return nil
}
