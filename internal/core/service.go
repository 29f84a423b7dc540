// Package core is the one service of cubby: every change of a sandbox happens
// here, whoever asks for it. It keeps the order of things (validate, admit,
// write down, act, undo), serialises acts on one sandbox, owns the execs while
// they run, and makes the runtimes match the store after a crash.
//
// The doors above it decode, authenticate and encode; the mechanisms below it
// (store, driver, guest, workspace, journal, egress, image) each know one
// technology and not each other. Core knows no transport, no SQL and no
// runtime, and it takes no shortcut around [store.Store.Move].
//
// Every method takes the caller from its context ([auth.From]); a sandbox of
// another tenant does not exist for it. Methods wait until [Service.Run] has
// reconciled what an earlier daemon left, and are refused as Unavailable after
// it ended.
package core

import (
	"context"
	"log/slog"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/egress"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/workspace"
)

// Metrics records what core does. *telemetry.Metrics is one.
type Metrics interface {
	Create(isolation, result string, d time.Duration)
	Exec(reason string, d time.Duration)
	Egress(allowed bool)
	DiskPressure(frozen bool, free int64)
}

// Config is what a Service needs. Store, Driver, Disks, Images and Journals
// are required and stay the caller's to close, after Run has returned.
type Config struct {
	Store    *store.Store
	Driver   driver.Driver
	Disks    *workspace.Disks
	Images   *image.Store
	Journals *journal.Journals
	// Egress is what the proxy is made from; its OnDecision, if any, hears
	// decisions after core.
	Egress egress.Config

	Log     *slog.Logger     // nil: silent
	Metrics Metrics          // nil: nothing is recorded
	Now     func() time.Time // nil: time.Now

	// Defaults fills what a create leaves open. Zero fields are filled by
	// [DefaultSpec].
	Defaults sandbox.Spec

	// MaxSandboxes bounds how many run at once; 0 is no bound.
	MaxSandboxes int
	// MinFreeMemory refuses creates and starts while the host has less
	// memory available, in bytes.
	MinFreeMemory int64
	// JournalBytes is what the output of a sandbox's execs may take on the
	// host; it is taken off the sandbox's disk.
	JournalBytes int64
	// HistoryRetention is how long events and output outlive a sandbox.
	HistoryRetention time.Duration
}

// Service is cubby's core. Make one with [New]; all methods may be called
// from any goroutine.
type Service struct{ cfg Config }

// New returns a Service. It starts nothing and touches nothing.
func New(cfg Config) (*Service, error) { return &Service{cfg: cfg}, nil }

// Run makes the runtimes and the store agree, lets waiting calls in, and keeps
// everything going until ctx ends. Then it waits for running calls and all
// goroutines. Sandboxes and their execs go on without it. Nil is a clean stop.
func (s *Service) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Problem is a reason why the daemon is not ready.
type Problem struct {
	Part    string `json:"part"` // "store", "driver", "disks", …
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Ready returns what keeps the service from doing all its work; none is ready.
func (s *Service) Ready(ctx context.Context) []Problem { return nil }

// CountSandboxes counts sandboxes by state, for metrics.
func (s *Service) CountSandboxes(ctx context.Context) (map[string]int, error) { return nil, errStub }

// DiskPressure is what workspace.Config.OnPressure calls.
func (s *Service) DiskPressure(frozen bool, free int64) {}

var errStub = errs.E(errs.Internal, "not built yet")
