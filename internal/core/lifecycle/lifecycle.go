// Package lifecycle changes what sandboxes there are and whether they run: it
// creates, starts, stops, archives and destroys them, ends those that nobody uses
// or whose time is over, and makes the runtimes match the store after a crash. It
// keeps the order of things (validate, admit, write down, act, undo), serialises
// acts on one sandbox, and takes no shortcut around [store.Store.Move].
//
// What a sandbox does while it runs is not its matter: that is live's, which it
// tells when a run begins and why it ends.
package lifecycle

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/core/budget"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/history"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/pool"
	"github.com/cubbyhq/cubby/internal/core/program"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/core/tenants"
	"github.com/cubbyhq/cubby/internal/core/threads"
	"github.com/cubbyhq/cubby/internal/core/transfer"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/hostfiles"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/keylock"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Images is what is needed of the image store. *image.Store is one.
type Images interface {
	List(ctx context.Context) ([]image.Image, error)
	Resolve(ctx context.Context, name string) (image.Image, error)
	Pin(ctx context.Context, digest string, owner sandbox.UID) error
	Unpin(ctx context.Context, digest string, owner sandbox.UID) error
	Pins(ctx context.Context) ([]image.Pin, error)
	Sweep(ctx context.Context, inUse func(digest string) bool) (int64, error)
}

// Config is what sandboxes are made with. All fields are required unless they say
// otherwise.
type Config struct {
	Store    *store.Store
	Driver   driver.Driver
	Disks    storage.Storage
	Images   Images
	Journals *journal.Journals
	Live     *live.Sandboxes
	Packages *program.Packages
	Archives *transfer.Archives
	Uploads  *hostfiles.Uploads // files of threads; nil: none are kept

	Gate     *gate.Gate
	Scope    *scope.Scope
	Recorder *history.Recorder
	Budget   budget.Budget // the zero one charges nothing
	Log      *slog.Logger
	Now      func() time.Time
	Uptime   func() time.Duration // a clock that does not step
	On       Hooks

	// Origin finds a snapshot of a tenant's by its id or name, to begin a sandbox
	// from; of the caller's, that is, when tenant is "".
	Origin func(ctx context.Context, tenant, name string) (Origin, error)

	Settings Settings
}

// Hooks are told what happens. All are required.
type Hooks struct {
	// Create hears how a create ended, and how long it took.
	Create func(isolation, result string, took time.Duration)
	// Run hears that a run of a sandbox has begun, or that its spec is another.
	Run func(r *live.Run, b sandbox.Sandbox)
	// Services is how those of a sandbox that goes on stand; b says how they stood.
	Services func(b sandbox.Sandbox) map[string]sandbox.ServiceState
	// Reconcile finishes what was cut off of acts on snapshots.
	Reconcile func(ctx context.Context) error
}

// Settings are what an operator decides about sandboxes. The zero value is
// usable: it bounds nothing and gives the defaults of [DefaultSpec].
type Settings struct {
	// Authorities is a file of the host with the certificate authorities that
	// every sandbox trusts; "" leaves them to the images.
	Authorities string
	// Defaults fills what a create leaves open. Zero fields are filled by
	// [DefaultSpec].
	Defaults sandbox.Spec
	// IdleTimeout is the default where zero means never; nil leaves it to
	// Defaults.
	IdleTimeout *time.Duration
	// Caps bound how many sandboxes run at once.
	Caps admission.Caps
	// Threads is what holds for sandboxes in a thread.
	Threads threads.Limits
	// Interfaces have limits of their own for the sandboxes that are made
	// through them; others have those of Defaults.
	Interfaces map[admission.Interface]admission.InterfaceLimits
	// JournalBytes is what the output of a sandbox's execs may take on the
	// host; it is taken off the sandbox's disk.
	JournalBytes int64
	// TenantDiskBytes is the size of the disk that the sandboxes of a tenant
	// share; 0: [tenants.DefaultDisk]. Disks that exist keep theirs.
	TenantDiskBytes int64

	// MemoryReserve is the memory that the host keeps available, in bytes: with
	// less of it idle sandboxes are put to sleep, and none is created, started or
	// woken. 0 is none.
	MemoryReserve int64
	// SleepDiskBytes bounds what the memories of sleeping sandboxes take of the
	// host's disk: beyond it the oldest are given up. 0 is no bound.
	SleepDiskBytes int64

	// Pool is what is kept ready for creates. Zero fields of a kind are filled as
	// a create's are. DefaultPool adds [defaultKind] where the host has the memory.
	// Containers is how many are kept ready that are like the last one made.
	Pool        []pool.Kind
	DefaultPool bool
	Containers  int
	// ServicePause waits before a service starts again; nil: as long as it is told.
	ServicePause func(ctx context.Context, d time.Duration) bool
	// TaskProgram is the command of cubby-init in every sandbox; nil: [task.Program].
	TaskProgram []string
	// Host is what the machine has, and MemAvailable its free memory in
	// bytes; zero fields are measured.
	Host         admission.Host
	MemAvailable func() (int64, error)
}

// Problem is a reason why the daemon is not ready.
type Problem struct {
	Part    string `json:"part"` // "store", "driver", "disks", …
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// ProblemOf says what is wrong with a part.
func ProblemOf(part string, err error) Problem {
	info := errs.Public(err)
	return Problem{Part: part, Message: info.Message, Hint: info.Hint}
}

// Sandboxes is the sandboxes of all tenants. Methods may be called from any
// goroutine; those that take an id find it for the caller of their context, and
// those that change a sandbox wait for whoever is at it.
type Sandboxes struct {
	*acts
	*waker
	creator    *creator
	threads    *threads.Threads
	reconciler *Reconciler
	reaper     *reaper
}

// New returns the sandboxes that the store knows. It starts nothing and changes
// nothing.
func New(cfg Config) (*Sandboxes, error) {
	settings := &cfg.Settings
	var err error
	if settings.Host, err = settings.Host.Measure(); err != nil {
		return nil, err
	}
	builtIn := sandbox.DefaultSpec()
	builtIn.Limits.CPUs = min(builtIn.Limits.CPUs, float64(settings.Host.CPUs))
	builtIn.Limits.MemoryBytes = min(builtIn.Limits.MemoryBytes, settings.Host.MemoryBytes)
	settings.Defaults = settings.Defaults.WithDefaults(builtIn)
	if settings.IdleTimeout != nil {
		settings.Defaults.IdleTimeout = *settings.IdleTimeout
	}
	if err := settings.Defaults.Validate(); err != nil {
		return nil, fmt.Errorf("the defaults of sandboxes: %w", err)
	}
	limits, err := admission.LimitsOfInterfaces(settings.Interfaces, settings.Defaults.Limits, settings.Host)
	if err != nil {
		return nil, err
	}
	kinds, err := poolKinds(*settings)
	if err != nil {
		return nil, err
	}
	a := &acts{cfg: cfg, debts: newDebts(), admission: admission.New(admission.Config{
		Caps: settings.Caps, MemoryReserve: settings.MemoryReserve, Available: settings.MemAvailable, Disks: cfg.Disks, CPUs: settings.Host.CPUs,
	})}
	a.tenants = tenants.New(tenants.Config{
		Store: cfg.Store, Disks: cfg.Disks, Scope: cfg.Scope, Gate: cfg.Gate, Log: cfg.Log,
		DiskBytes: settings.TenantDiskBytes, Left: a.debts.reconcileSoon,
	})
	a.pool = a.newPool(kinds)
	conversations := threads.New(threads.Config{
		Store: cfg.Store, Live: cfg.Live, Gate: cfg.Gate, Uploads: cfg.Uploads, Log: cfg.Log, Now: cfg.Now, Limits: settings.Threads, Acts: ofThread{a},
	})
	return &Sandboxes{
		acts: a, waker: &waker{acts: a}, creator: &creator{acts: a, limits: limits, threads: conversations}, threads: conversations,
		reconciler: &Reconciler{acts: a}, reaper: newReaper(a),
	}, nil
}

// Threads is the conversations that sandboxes belong to.
func (s *Sandboxes) Threads() *threads.Threads { return s.threads }

// Tenants is the names that sandboxes belong to.
func (s *Sandboxes) Tenants() *tenants.Tenants { return s.tenants }

// Reconciler makes the runtimes and the store agree.
func (s *Sandboxes) Reconciler() *Reconciler { return s.reconciler }

// Host is what the machine has.
func (s *Sandboxes) Host() admission.Host { return s.cfg.Settings.Host }

// Freed hears that nothing of a sandbox's run is left: it counts no more.
func (s *Sandboxes) Freed(box sandbox.UID) { s.admission.Give(box) }

// Warm has the usual image verified before the first create asks for it.
func (s *Sandboxes) Warm(ctx context.Context) {
	name := s.cfg.Settings.Defaults.Image
	if _, err := s.cfg.Images.Resolve(ctx, name); err != nil && ctx.Err() == nil {
		s.cfg.Log.Debug("look at the default image", "image", name, telemetry.KeyErr, err)
	}
}

// Problems returns what keeps sandboxes from being made and looked after; none
// is ready.
func (s *Sandboxes) Problems() (all []Problem) {
	if err := s.supports(s.cfg.Settings.Defaults.Isolation); err != nil {
		all = append(all, ProblemOf("driver", err))
	}
	if err := s.cfg.Disks.Admit(); err != nil {
		all = append(all, ProblemOf("disks", err))
	}
	if err := s.pool.Problem(); err != nil {
		all = append(all, ProblemOf("pool", err))
	}
	return append(all, s.debts.problems()...)
}

// Pool is what is kept ready for creates.
func (s *Sandboxes) Pool() *pool.Pool { return s.pool }

// Reap is one turn of the reaper: it looks at every sandbox that may have to end,
// once, and has those ended that have to. It does not wait for that; ended is
// called for each. It returns how many they are.
func (s *Sandboxes) Reap(ended func(sandbox.UID, error)) (begun int) { return s.reaper.turn(ended) }

// Reaping reports whether a sandbox is being ended by the reaper.
func (s *Sandboxes) Reaping() bool {
	s.reaper.mu.Lock()
	defer s.reaper.mu.Unlock()
	return len(s.reaper.busy) > 0
}

// ReapLoop reaps until ctx ends.
func (s *Sandboxes) ReapLoop(ctx context.Context) { s.reaper.loop(ctx) }

// acts is what is done to one sandbox whose lock is held, and what all that needs.
type acts struct {
	cfg       Config
	ids       keylock.Locks // by sandbox.ID.Key; held by whoever changes a sandbox
	admission *admission.Controller
	lifetimes lifetimes
	debts     *debts
	pool      *pool.Pool
	tenants   *tenants.Tenants
	engaged   engaged
}

// supports is nil when the driver has an isolation on this host.
func (s *acts) supports(isolation sandbox.Isolation) error {
	for _, i := range s.cfg.Driver.Capabilities().Isolations {
		if i.Isolation == isolation {
			return i.Err
		}
	}
	return errs.E(errs.Unsupported, "isolation %q is not available on this host", isolation)
}

// attach makes the run of a sandbox that has begun to run. The caller holds the
// sandbox's lock.
func (s *acts) attach(b sandbox.Sandbox) *live.Run {
	s.admission.Adopt(b)
	r := s.cfg.Live.Attach(b)
	if b.State == sandbox.Running { // else it is being made still
		s.cfg.On.Run(r, b)
	}
	return r
}

// readopt makes the run of a sandbox that runs on, with all that it has. The
// caller holds the sandbox's lock.
func (s *acts) readopt(ctx context.Context, b sandbox.Sandbox) (*live.Run, error) {
	s.admission.Adopt(b)
	r, err := s.cfg.Live.Adopt(ctx, b)
	if err != nil {
		s.debts.reconcileSoon()
		return nil, err
	}
	s.cfg.On.Run(r, b)
	return r, nil
}
