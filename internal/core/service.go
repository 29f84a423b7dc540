// Package core is the one service of cubby: every change of a sandbox happens
// here, whoever asks for it. It keeps the order of things (validate, admit,
// write down, act, undo), serialises acts on one sandbox, owns the execs while
// they run, and makes the runtimes match the store after a crash.
//
// The doors above it decode, authenticate and encode; the mechanisms below it
// (store, driver, guest, storage, journal, egress, image) each know one
// technology and not each other. Core knows no transport, no SQL and no
// runtime, and it takes no shortcut around [store.Store.Move].
//
// Every method takes the caller from its context ([auth.From]); a sandbox of
// another tenant does not exist for it. Methods wait until [Service.Run] has
// reconciled what an earlier daemon left, and are refused as Unavailable after
// it ended.
package core

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/archive"
	"github.com/cubbyhq/cubby/internal/core/budget"
	"github.com/cubbyhq/cubby/internal/core/cell"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/history"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/program"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/core/transfer"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/egress"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/hostfiles"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/keylock"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Metrics records what core does. *telemetry.Metrics is one.
type Metrics interface {
	live.Metrics
	Create(isolation, result string, d time.Duration)
	DiskPressure(frozen bool, free int64)
}

// Images is what core needs of the image store. *image.Store is one.
type Images interface {
	List(ctx context.Context) ([]image.Image, error)
	Resolve(ctx context.Context, name string) (image.Image, error)
	Pin(ctx context.Context, digest string, owner sandbox.UID) error
	Unpin(ctx context.Context, digest string, owner sandbox.UID) error
	Pins(ctx context.Context) ([]image.Pin, error)
	Sweep(ctx context.Context, inUse func(digest string) bool) (int64, error)
}

// Config is what a Service needs. Store, Driver, Disks, Images and Journals
// are required and stay the caller's to close, after Run has returned.
type Config struct {
	Store    *store.Store
	Driver   driver.Driver
	Disks    storage.Storage
	Images   Images
	Journals *journal.Journals
	// Archives is where destroyed sandboxes' files can go; nil: nowhere.
	Archives *archive.Storage
	// Egress is what the proxy is made from; its OnDecision and OnEnd, if
	// any, hear after core.
	Egress egress.Config

	Log     *slog.Logger     // nil: silent
	Metrics Metrics          // nil: nothing is recorded
	Now     func() time.Time // nil: time.Now
	// Uptime is a clock that does not step, for what is measured while the
	// service runs; nil: Now since its making, which does not step either
	// where it is time.Now.
	Uptime func() time.Duration

	// Authorities is a file of the host with the certificate authorities that
	// every sandbox trusts; "" leaves them to the images.
	Authorities string

	// Defaults fills what a create leaves open. Zero fields are filled by
	// [DefaultSpec].
	Defaults sandbox.Spec

	// IdleTimeout is the default where zero means never; nil leaves it to
	// Defaults.
	IdleTimeout *time.Duration

	// Packages says how packages are installed.
	Packages program.PackagesConfig

	// Caps bound how many sandboxes run at once.
	Caps Caps
	// Threads is what holds for sandboxes in a thread.
	Threads ThreadLimits
	// Uploads keeps files of threads; nil: none.
	Uploads *hostfiles.Uploads
	// ImportDirs are the directories of the host that sandboxes may import
	// from; nil: none.
	ImportDirs *hostfiles.Allowed
	// DownloadURL is where clients get what a sandbox exported; nil: that is not
	// known.
	DownloadURL func(b sandbox.Sandbox, path string) string
	// MinFreeMemory refuses creates and starts while the host has less
	// memory available, in bytes.
	MinFreeMemory int64
	// Code bounds the texts of executions; nil: [cell.DefaultCaps].
	Code *cell.Caps
	// JournalBytes is what the output of a sandbox's execs may take on the
	// host; it is taken off the sandbox's disk.
	JournalBytes int64
	// TenantDiskBytes is the size of the disk that the sandboxes of a tenant
	// share; 0: [DefaultTenantDisk]. Disks that exist keep theirs.
	TenantDiskBytes int64
	// Interfaces have limits of their own for the sandboxes that are made
	// through them; others have those of Defaults.
	Interfaces map[Interface]InterfaceLimits
	// HistoryRetention is how long events and output outlive a sandbox; 0 is
	// for ever.
	HistoryRetention time.Duration
	// HistoryOfTenant is how many bytes of history, output included, a tenant
	// may have, and the sandboxes of no tenant together; 0 is no bound.
	HistoryOfTenant int64

	// Memory counts what the answers of reads take; nil: nothing is counted.
	Memory budget.Memory

	// Host is what the machine has, and MemAvailable its free memory in
	// bytes; zero fields are measured.
	Host         Host
	MemAvailable func() (int64, error)
}

// Service is cubby's core. Make one with [New]; all methods may be called
// from any goroutine.
type Service struct {
	cfg      Config
	log      *slog.Logger
	now      func() time.Time
	began    time.Time // of the wall clock
	uptime   func() time.Duration
	metrics  Metrics
	host     Host
	defaults sandbox.Spec
	limits   map[Interface]sandbox.Limits

	gate      *gate.Gate
	scope     *scope.Scope
	budget    budget.Budget
	recorder  *history.Recorder
	events    *history.Events
	retention *history.Retention
	live      *live.Sandboxes
	code      *cell.Code
	kernels   *cell.Kernels
	git       *program.Git
	packages  *program.Packages
	ids       keylock.Locks // by sandbox.ID.Key; held by whoever changes a sandbox
	wakes     wakes
	quotas    keylock.Locks // by tenant; held while a sandbox is counted and stored
	seats     keylock.Locks // by tenant; held by whoever makes a thread active
	admission *admission
	transfers *transfer.Files
	exports   *transfer.Exports
	imports   *transfer.Imports
	archives  *transfer.Archives
	lifetimes lifetimes
	reaper    *reaper
	// By tenant; held while its disk is made, used for the first time, or removed.
	tenantLocks keylock.Locks
	wake        chan struct{} // asks for a reconciliation soon

	mu      sync.Mutex
	faults  []Problem                   // of the last reconciliation; guarded by mu
	settled bool                        // no reconciliation has to look at every row; guarded by mu
	untold  map[sandbox.UID]sandbox.Why // why what the store could not note ended; guarded by mu
}

// New returns a Service. It starts nothing and changes nothing.
func New(cfg Config) (*Service, error) {
	s := &Service{
		cfg:     cfg,
		log:     cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)),
		now:     cfg.Now,
		metrics: cfg.Metrics,
		host:    cfg.Host,
		gate:    gate.New(),
		budget:  budget.Budget{Memory: cfg.Memory},
		reaper:  newReaper(),
		wake:    make(chan struct{}, 1),
		untold:  make(map[sandbox.UID]sandbox.Why),
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.scope = scope.New(cfg.Store, s.gate, s.now)
	s.recorder = history.NewRecorder(cfg.Store, s.gate, s.log, s.now)
	s.events = history.NewEvents(cfg.Store, s.scope, s.gate, s.budget)
	s.retention = &history.Retention{
		Store: cfg.Store, Journals: cfg.Journals, Log: s.log, Now: s.now, Steady: func() time.Time { return s.began.Add(s.uptime()) },
		Age: cfg.HistoryRetention, Bytes: cfg.HistoryOfTenant,
	}
	s.cfg.TenantDiskBytes = cmp.Or(cfg.TenantDiskBytes, DefaultTenantDisk)
	s.began, s.uptime = s.now(), cfg.Uptime
	if s.uptime == nil {
		s.uptime = func() time.Duration { return s.now().Sub(s.began) }
	}
	if s.metrics == nil {
		s.metrics = noMetrics{}
	}
	var err error
	if s.host, err = s.host.measure(); err != nil {
		return nil, err
	}
	builtIn := DefaultSpec()
	builtIn.Limits.CPUs = min(builtIn.Limits.CPUs, float64(s.host.CPUs))
	builtIn.Limits.MemoryBytes = min(builtIn.Limits.MemoryBytes, s.host.MemoryBytes)
	s.defaults = fill(cfg.Defaults, builtIn)
	if cfg.IdleTimeout != nil {
		s.defaults.IdleTimeout = *cfg.IdleTimeout
	}
	if err := s.defaults.Validate(); err != nil {
		return nil, fmt.Errorf("the defaults of sandboxes: %w", err)
	}
	if s.limits, err = interfaceLimits(cfg.Interfaces, s.defaults.Limits, s.host); err != nil {
		return nil, err
	}
	s.admission = newAdmission(cfg, s.host.CPUs)
	s.transfers = transfer.NewFiles(s.openFiles, s.recorder, s.host.CPUs)
	s.exports = transfer.NewExports(transfer.ExportsConfig{
		Files: s.transfers, Store: cfg.Store, Scope: s.scope, Log: s.log, Now: s.now, DownloadURL: cfg.DownloadURL,
	})
	s.imports = transfer.NewImports(s.exports, cfg.Uploads, cfg.ImportDirs)
	s.archives = transfer.NewArchives(cfg.Archives, s.gate, s.now)
	s.openRooms()
	return s, nil
}

// openRooms makes what serves sandboxes that run.
func (s *Service) openRooms() {
	cfg := s.cfg
	reader := &cell.Reader{Journals: cfg.Journals, Budget: s.budget, Caps: cell.DefaultCaps()}
	if cfg.Code != nil {
		reader.Caps = *cfg.Code
	}
	s.live = live.New(live.Config{
		Store: cfg.Store, Driver: cfg.Driver, Journals: cfg.Journals, Gate: s.gate, Scope: s.scope, Recorder: s.recorder, Budget: s.budget,
		Log: s.log, Metrics: s.metrics, Now: s.now, Uptime: s.uptime, Admit: cfg.Disks.Admit, Egress: cfg.Egress, Commands: cfg.Caps.Commands,
		Operations: live.Operations{
			"git":      program.GitOperation(cfg.Journals),
			"packages": program.PackagesOperation(cfg.Journals),
			"code":     {Result: reader.Result},
		},
		OnDeath: s.died, OnFree: s.admission.give,
	})
	s.kernels = cell.NewKernels(s.live, s.recorder)
	s.code = cell.NewCode(s.gate, s.live, s.kernels, reader)
	s.git = &program.Git{Execs: s.live.Execs(), Scope: s.scope, Store: cfg.Store}
	s.packages = &program.Packages{Config: cfg.Packages, Execs: s.live.Execs(), Scope: s.scope, Gate: s.gate, Journals: cfg.Journals}
}

// Run makes the runtimes and the store agree, lets waiting calls in, and keeps
// everything going until ctx ends. Then it waits for running calls and all
// goroutines. Sandboxes and their execs go on without it. Nil is a clean stop.
// A service runs once.
func (s *Service) Run(ctx context.Context) error {
	// Goroutines end after calls were refused, so no call meets a service
	// that is half gone.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if err := s.gate.Begin(inner); err != nil {
		return err
	}
	ended, written := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(written)
		s.live.Serve(ended)
	}()
	s.gate.Spawn(s.warm)
	s.reconcile(ctx)
	s.gate.Open()
	s.gate.Spawn(s.reconcileLoop)
	s.gate.Spawn(s.reapLoop)
	s.gate.Spawn(s.pruneLoop)
	s.gate.Spawn(s.retention.BoundLoop)

	<-ctx.Done()
	s.gate.End(cancel)
	close(ended) // nobody decides any more
	<-written
	return nil
}

// warm has the usual image verified before the first create asks for it.
func (s *Service) warm(ctx context.Context) {
	if _, err := s.cfg.Images.Resolve(ctx, s.defaults.Image); err != nil && ctx.Err() == nil {
		s.log.Debug("look at the default image", "image", s.defaults.Image, telemetry.KeyErr, err)
	}
}

// Problem is a reason why the daemon is not ready.
type Problem struct {
	Part    string `json:"part"` // "store", "driver", "disks", …
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func problem(part string, err error) Problem {
	info := errs.Public(err)
	return Problem{Part: part, Message: info.Message, Hint: info.Hint}
}

// Ready returns what keeps the service from doing all its work; none is ready.
func (s *Service) Ready(ctx context.Context) []Problem {
	var all []Problem
	select {
	case <-s.gate.Opened():
	default:
		all = append(all, Problem{Part: "core", Message: "what an earlier daemon left is not reconciled yet"})
	}
	select {
	case <-s.gate.Ended():
		all = append(all, problem("core", gate.ErrShuttingDown()))
	default:
	}
	if err := s.cfg.Store.Ping(ctx); err != nil {
		all = append(all, problem("store", err))
	}
	if err := s.supports(s.defaults.Isolation); err != nil {
		all = append(all, problem("driver", err))
	}
	if err := s.cfg.Disks.Admit(); err != nil {
		all = append(all, problem("disks", err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(all, s.faults...)
}

// supports is nil when the driver has an isolation on this host.
func (s *Service) supports(isolation sandbox.Isolation) error {
	for _, i := range s.cfg.Driver.Capabilities().Isolations {
		if i.Isolation == isolation {
			return i.Err
		}
	}
	return errs.E(errs.Unsupported, "isolation %q is not available on this host", isolation)
}

// CountSandboxes counts sandboxes by state, for metrics. Destroyed ones are
// history and not counted.
func (s *Service) CountSandboxes(ctx context.Context) (map[string]int, error) {
	counts := make(map[string]int)
	for _, state := range sandbox.States() {
		if state == sandbox.Destroyed {
			continue
		}
		n, err := s.cfg.Store.CountSandboxes(ctx, state)
		if err != nil {
			return nil, err
		}
		counts[string(state)] = n
	}
	return counts, nil
}

// attach makes the run of a sandbox that the driver says is running. The caller
// holds the sandbox's lock.
func (s *Service) attach(b sandbox.Sandbox) *live.Run {
	s.admission.adopt(b)
	return s.live.Attach(b)
}

// Execs is the commands of sandboxes.
func (s *Service) Execs() *live.Execs { return s.live.Execs() }

// Terminals is the terminals of sandboxes.
func (s *Service) Terminals() *live.Terminals { return s.live.Terminals() }

// Egress is the way from sandboxes to other hosts.
func (s *Service) Egress() *live.Egress { return s.live.Egress() }

// Sessions is the session shells of sandboxes.
func (s *Service) Sessions() *Sessions { return &Sessions{s} }

// Code is code that is run in sandboxes.
func (s *Service) Code() *cell.Code { return s.code }

// Kernels is the kernels of sandboxes.
func (s *Service) Kernels() *cell.Kernels { return s.kernels }

// Git is git in sandboxes.
func (s *Service) Git() *program.Git { return s.git }

// Packages is the packages of sandboxes.
func (s *Service) Packages() *program.Packages { return s.packages }

// DiskPressure is what the storage tells when it freezes and thaws disks.
func (s *Service) DiskPressure(frozen bool, free int64) {
	s.metrics.DiskPressure(frozen, free)
	var p event.Payload = event.Thawed{FreeBytes: free}
	if frozen {
		p = event.Frozen{FreeBytes: free}
	}
	s.recorder.Note(context.Background(), event.New("", "", p))
}

type noMetrics struct{}

func (noMetrics) Create(string, string, time.Duration) {}
func (noMetrics) Exec(string, time.Duration)           {}
func (noMetrics) Egress(bool, string)                  {}
func (noMetrics) DiskPressure(bool, int64)             {}
func (noMetrics) EgressUnlisted()                      {}

func (noMetrics) EgressEnded(string, string, time.Duration) {}
