// Package core is the one service of cubby: every change of a sandbox happens
// below it, whoever asks for it. It is a façade over rooms with one matter each,
// which it wires and lets calls into: what sandboxes there are (lifecycle), what
// they do while they run (live), code (cell), git and packages (program), files
// (transfer), what is kept of sandboxes (snapshot) and what happened (history).
//
// The doors above it decode, authenticate and encode; the mechanisms below it
// (store, driver, guest, storage, journal, egress, image) each know one
// technology and not each other. Core knows no transport, no SQL and no
// runtime.
//
// Every method takes the caller from its context ([auth.From]); a sandbox of
// another tenant does not exist for it. Methods wait until [Service.Run] has
// reconciled what an earlier daemon left, and are refused as Unavailable after
// it ended.
package core

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/cubbyhq/cubby/internal/archive"
	"github.com/cubbyhq/cubby/internal/core/budget"
	"github.com/cubbyhq/cubby/internal/core/cell"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/history"
	"github.com/cubbyhq/cubby/internal/core/imagebuild"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/ports"
	"github.com/cubbyhq/cubby/internal/core/preview"
	"github.com/cubbyhq/cubby/internal/core/program"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/core/services"
	"github.com/cubbyhq/cubby/internal/core/snapshot"
	"github.com/cubbyhq/cubby/internal/core/tasks"
	"github.com/cubbyhq/cubby/internal/core/transfer"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/egress"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/hostfiles"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/task"
)

// Metrics records what core does. *telemetry.Metrics is one.
type Metrics interface {
	live.Metrics
	Create(isolation, result string, d time.Duration)
	DiskPressure(frozen bool, free int64)
	DiskFault(over bool)
}

// Images is what is needed of the image store. *image.Store is one.
type Images interface {
	lifecycle.Images
	imagebuild.Images
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

	// Sandboxes is what holds for all sandboxes.
	Sandboxes lifecycle.Settings
	// Snapshots bounds what a tenant may keep of them.
	Snapshots snapshot.Bounds
	// History bounds what is kept of them.
	History history.Bounds
	// Packages says how packages are installed.
	Packages program.PackagesConfig
	// Code bounds the texts of executions; nil: [cell.DefaultCaps].
	Code *cell.Caps
	// Uploads keeps files of threads; nil: none.
	Uploads *hostfiles.Uploads
	// ImportDirs are the directories of the host that sandboxes may import
	// from; nil: none.
	ImportDirs *hostfiles.Allowed
	// URLs is where clients find what sandboxes give.
	URLs URLs
	// Memory counts what the answers of reads take; nil: nothing is counted.
	Memory budget.Memory
}

// URLs is where clients find what sandboxes give. What is nil is not known.
type URLs struct {
	// Download is for a path that a sandbox exported.
	Download func(b sandbox.Sandbox, path string) string
	// Preview is for a port of a sandbox; "" is nowhere.
	Preview func(id string, port int) string
}

// complete fills in what may be left out.
func (cfg *Config) complete() (began time.Time) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = noMetrics{}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Sandboxes.TaskProgram == nil {
		cfg.Sandboxes.TaskProgram = []string{task.Program}
	}
	if cfg.Sandboxes.ServicePause == nil {
		cfg.Sandboxes.ServicePause = gate.Sleep
	}
	now := cfg.Now
	began = now()
	if cfg.Uptime == nil {
		cfg.Uptime = func() time.Duration { return now().Sub(began) }
	}
	return began
}

// Service is cubby's core. Make one with [New]; all methods may be called
// from any goroutine.
type Service struct {
	cfg      Config
	gate     *gate.Gate
	scope    *scope.Scope
	budget   budget.Budget
	recorder *history.Recorder

	sandboxes *lifecycle.Sandboxes
	snapshots *snapshot.Snapshots
	live      *live.Sandboxes
	code      *cell.Code
	kernels   *cell.Kernels
	programs  struct {
		git      *program.Git
		packages *program.Packages
		builds   *imagebuild.Builds
	}
	files     *transfer.Files
	exports   *transfer.Exports
	imports   *transfer.Imports
	archives  *transfer.Archives
	previews  *preview.Previews
	services  *services.Services
	tasks     *tasks.Tasks
	events    *history.Events
	retention *history.Retention
}

// New returns a Service. It starts nothing and changes nothing.
func New(cfg Config) (*Service, error) {
	began := cfg.complete()
	s := &Service{cfg: cfg, gate: gate.New(), budget: budget.New(cfg.Memory)}
	s.scope = scope.New(cfg.Store, s.gate, cfg.Now)
	s.recorder = history.NewRecorder(cfg.Store, s.gate, cfg.Log, cfg.Now)
	watch := ports.New(ports.Config{Look: s.lookAtPorts, Note: s.recorder.Note, Spawn: s.gate.Spawn})
	s.events = history.NewEvents(cfg.Store, s.scope, s.gate, s.budget, func(box sandbox.UID, wants func(string) bool) func() {
		if !wants(event.PortOpened) && !wants(event.PortClosed) {
			return func() {}
		}
		return watch.Follow(box)
	})
	s.retention = &history.Retention{
		Store: cfg.Store, Journals: cfg.Journals, Log: cfg.Log, Now: cfg.Now,
		Steady: func() time.Time { return began.Add(cfg.Uptime()) }, Bounds: cfg.History,
	}
	s.archives = transfer.NewArchives(cfg.Archives, s.gate, cfg.Now)
	s.openLive(watch)
	var err error
	s.sandboxes, err = lifecycle.New(lifecycle.Config{
		Store: cfg.Store, Driver: cfg.Driver, Disks: cfg.Disks, Images: cfg.Images, Journals: cfg.Journals,
		Live: s.live, Packages: s.programs.packages, Archives: s.archives, Uploads: cfg.Uploads,
		Gate: s.gate, Scope: s.scope, Recorder: s.recorder, Budget: s.budget,
		Log: cfg.Log, Now: cfg.Now, Uptime: cfg.Uptime, Settings: cfg.Sandboxes,
		On: lifecycle.Hooks{
			Create: cfg.Metrics.Create, Run: s.services.Apply, Services: s.services.States,
			Reconcile: func(ctx context.Context) error { return s.snapshots.Reconcile(ctx) },
		},
		Origin: func(ctx context.Context, tenant, name string) (lifecycle.Origin, error) {
			return s.snapshots.Origin(ctx, tenant, name)
		},
	})
	if err != nil {
		return nil, err
	}
	s.snapshots = snapshot.New(snapshot.Config{
		Store: cfg.Store, Driver: cfg.Driver, Disks: cfg.Disks, Images: cfg.Images, Sandboxes: s.sandboxes, Services: s.services.States,
		Gate: s.gate, Scope: s.scope, Recorder: s.recorder, Log: cfg.Log, Bounds: cfg.Snapshots, Budget: s.budget,
	})
	s.programs.builds = imagebuild.New(imagebuild.Config{
		Images: cfg.Images, Journals: cfg.Journals, Create: s.sandboxes.Create, InUse: s.sandboxes.ImagesInUse, PolicyChanged: s.live.Egress().PolicyChanged,
		Isolations: func() []driver.IsolationSupport { return cfg.Driver.Capabilities().Isolations },
		Gate:       s.gate, Log: cfg.Log, Indexes: cfg.Packages.Indexes, HostMemory: s.sandboxes.Host().MemoryBytes,
	})
	s.previews = preview.New(preview.Config{Store: cfg.Store, Live: s.live, Scope: s.scope, Gate: s.gate, Now: cfg.Now, URL: cfg.URLs.Preview, Watch: watch.Follow})
	s.files = transfer.NewFiles(s.openFiles, s.recorder, s.sandboxes.Host().CPUs)
	s.exports = transfer.NewExports(transfer.ExportsConfig{
		Files: s.files, Store: cfg.Store, Scope: s.scope, Log: cfg.Log, Now: cfg.Now, DownloadURL: cfg.URLs.Download, Budget: s.budget,
	})
	s.imports = transfer.NewImports(s.exports, cfg.Uploads, cfg.ImportDirs)
	return s, nil
}

// openLive makes what serves sandboxes that run. What that tells of, lifecycle
// hears: nothing runs before there is one.
func (s *Service) openLive(watch *ports.Watch) {
	cfg := s.cfg
	reader := &cell.Reader{Journals: cfg.Journals, Budget: s.budget, Caps: cell.DefaultCaps()}
	if cfg.Code != nil {
		reader.Caps = *cfg.Code
	}
	s.live = live.New(live.Config{
		Store: cfg.Store, Driver: cfg.Driver, Journals: cfg.Journals, Gate: s.gate, Scope: s.scope, Recorder: s.recorder, Budget: s.budget,
		Log: cfg.Log, Metrics: cfg.Metrics, Now: cfg.Now, Uptime: cfg.Uptime,
		Disks: cfg.Disks, Egress: cfg.Egress, Commands: cfg.Sandboxes.Caps.Commands,
		Operations: live.Operations{
			"git":      program.GitOperation(cfg.Journals),
			"packages": program.PackagesOperation(cfg.Journals),
			"code":     {Result: reader.Result},
			// It begins with the first run, when there are tasks.
			task.KindPrefix: {
				Result: func(ctx context.Context, x sandbox.Exec) (json.RawMessage, error) { return s.tasks.Result(ctx, x) },
				Attend: func(ctx context.Context, r *live.Run, e *live.Exec) { s.tasks.Attend(ctx, r, e) },
			},
		},
		Rouse:     func(ctx context.Context, b sandbox.Sandbox) error { return s.sandboxes.Rouse(ctx, b) },
		OnDeath:   func(ctx context.Context, r *live.Run, death driver.Death) { s.sandboxes.Died(ctx, r, death) },
		OnExecEnd: watch.Ended,
		OnFree: func(box sandbox.UID) {
			watch.Stopped(box)
			s.sandboxes.Freed(box)
		},
		OnUse: func(box sandbox.UID) { s.services.Look(box) },
	})
	s.services = services.New(services.Config{Store: cfg.Store, Live: s.live, Scope: s.scope, Gate: s.gate, Log: cfg.Log, Pause: cfg.Sandboxes.ServicePause})
	s.kernels = cell.NewKernels(s.live, s.recorder)
	s.code = cell.NewCode(s.gate, s.live, s.kernels, reader)
	s.programs.git = &program.Git{Execs: s.live.Execs(), Scope: s.scope, Store: cfg.Store}
	s.tasks = tasks.New(tasks.Config{
		Store: cfg.Store, Journals: cfg.Journals, Live: s.live, Git: s.programs.git, Services: s.services, Scope: s.scope, Gate: s.gate, Log: cfg.Log, Now: cfg.Now,
		Secrets: s.Secrets().Values, Note: s.recorder.Note, Program: cfg.Sandboxes.TaskProgram, Budget: s.budget,
	})
	s.programs.packages = &program.Packages{Config: cfg.Packages, Execs: s.live.Execs(), Scope: s.scope, Gate: s.gate, Journals: cfg.Journals}
}

// lookAtPorts is what the watch of ports looks at: those of a sandbox that runs.
func (s *Service) lookAtPorts(ctx context.Context, box sandbox.UID) ([]sandbox.Port, error) {
	r := s.live.Of(box)
	if r == nil {
		return nil, errs.E(errs.WrongState, "the sandbox does not run")
	}
	return r.Guest.Ports(ctx)
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
	s.gate.Spawn(s.sandboxes.Warm)
	s.sandboxes.Reconciler().Turn(ctx)
	s.gate.Open()
	s.gate.Spawn(s.sandboxes.Reconciler().Loop)
	s.gate.Spawn(s.sandboxes.ReapLoop)
	s.gate.Spawn(s.tasks.KillCancelled)
	s.gate.Spawn(s.sandboxes.Pool().Run)
	s.gate.Spawn(s.pruneLoop)
	s.gate.Spawn(s.retention.BoundLoop)

	<-ctx.Done()
	s.gate.End(cancel)
	close(ended) // nobody decides any more
	<-written
	return nil
}

const pruneEvery = time.Hour

// pruneLoop forgets what is too old: history, images that have lost their name
// and uploads.
func (s *Service) pruneLoop(ctx context.Context) {
	t := time.NewTicker(pruneEvery)
	defer t.Stop()
	for {
		s.retention.Prune(ctx)
		s.programs.builds.Sweep(ctx)
		s.sandboxes.Threads().SweepUploads(ctx)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// Ready returns what keeps the service from doing all its work; none is ready.
func (s *Service) Ready(ctx context.Context) []lifecycle.Problem {
	var all []lifecycle.Problem
	select {
	case <-s.gate.Opened():
	default:
		all = append(all, lifecycle.Problem{Part: "core", Message: "what an earlier daemon left is not reconciled yet"})
	}
	select {
	case <-s.gate.Ended():
		all = append(all, lifecycle.ProblemOf("core", gate.ErrShuttingDown()))
	default:
	}
	if err := s.cfg.Store.Ping(ctx); err != nil {
		all = append(all, lifecycle.ProblemOf("store", err))
	}
	return append(all, s.sandboxes.Problems()...)
}

// DiskPressure is what the storage tells when it freezes and thaws disks.
func (s *Service) DiskPressure(frozen bool, free int64) {
	s.cfg.Metrics.DiskPressure(frozen, free)
	var p event.Payload = event.Thawed{FreeBytes: free}
	if frozen {
		p = event.Frozen{FreeBytes: free}
	}
	s.recorder.Note(context.Background(), event.New("", "", p))
}

// DiskFault is what the storage tells when a disk cannot be written to any more, and
// when that is over.
func (s *Service) DiskFault(f storage.Fault, over bool) {
	s.cfg.Metrics.DiskFault(over)
	var p event.Payload = event.DiskFault{Shared: f.Shared, Reason: f.Reason()}
	if over {
		p = event.DiskRepair{Shared: f.Shared}
	}
	for _, user := range f.Users {
		s.recorder.Note(context.Background(), event.New(user, "", p))
	}
}

type noMetrics struct{}

func (noMetrics) Create(string, string, time.Duration) {}
func (noMetrics) Exec(string, time.Duration)           {}
func (noMetrics) Egress(bool, string)                  {}
func (noMetrics) DiskPressure(bool, int64)             {}
func (noMetrics) DiskFault(bool)                       {}
func (noMetrics) EgressUnlisted()                      {}

func (noMetrics) EgressEnded(string, string, time.Duration) {}
