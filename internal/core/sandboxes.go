package core

import (
	"context"
	"time"

	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/workspace"
)

// Query selects sandboxes of the caller's tenant. The zero value selects all
// that are not destroyed.
type Query struct {
	Labels   map[string]string // all must match
	States   []sandbox.State   // none: all but destroyed
	External sandbox.External  // fields that are not empty must match
	Cursor   string            // Next of the page before
	Limit    int               // 0: 100, at most 1000
}

// Page is a part of a list, newest first.
type Page struct {
	Sandboxes []sandbox.Sandbox
	Next      string // "" on the last page
}

// Sandbox returns the sandbox that has the id, or the newest failed one.
// NotFound when it was destroyed or never was.
func (s *Service) Sandbox(ctx context.Context, id string) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{}, errStub
}

// List returns sandboxes.
func (s *Service) List(ctx context.Context, q Query) (Page, error) { return Page{}, errStub }

// Patch changes a sandbox; nil fields keep what is. Maps and lists replace the
// old ones.
type Patch struct {
	Labels      *map[string]string
	Metadata    *map[string]string
	Ports       *[]int
	Network     *sandbox.Policy // holds from the next request of the sandbox on
	Visibility  *sandbox.Visibility
	IdlePolicy  *sandbox.IdlePolicy
	IdleTimeout *time.Duration
	ExecTimeout *time.Duration
	External    *sandbox.External
}

// Update changes what can be changed in a living sandbox.
func (s *Service) Update(ctx context.Context, id string, p Patch) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{}, errStub
}

// Start runs a stopped sandbox again. Starting a running one does nothing.
func (s *Service) Start(ctx context.Context, id string) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{}, errStub
}

// Stop ends everything that runs in the sandbox (SIGTERM, after grace SIGKILL)
// and keeps its files. Stopping a stopped one does nothing. A negative grace
// is the default.
func (s *Service) Stop(ctx context.Context, id string, grace time.Duration) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{}, errStub
}

// Destroy removes the sandbox and all that belongs to it; its history stays
// for the retention time. With keepDisk the disk waits for the next sandbox
// that the same owner creates with this id.
func (s *Service) Destroy(ctx context.Context, id string, keepDisk bool) error { return errStub }

// Purge destroys the sandbox that has the id, if there is one, and deletes the
// disk that was kept for it. It returns the bytes that the host got back.
// NotFound when there was neither.
func (s *Service) Purge(ctx context.Context, id string) (freed int64, err error) { return 0, errStub }

// Stats is what a sandbox uses now.
type Stats struct {
	MemoryBytes  int64 // 0 when it does not run
	CPUTime      time.Duration
	PIDs         int64 // -1: not known
	Disk         workspace.Usage
	JournalBytes int64
	Execs        int // that run now
	At           time.Time
}

// Stats measures a sandbox.
func (s *Service) Stats(ctx context.Context, id string) (Stats, error) { return Stats{}, errStub }

// Events returns a sandbox's history after a cursor, oldest first, and the
// cursor to go on from. Limit 0 is 100, at most 1000.
func (s *Service) Events(ctx context.Context, id string, after int64, limit int) (events []sandbox.Event, next int64, err error) {
	return nil, 0, errStub
}

// Images lists the images that sandboxes can be created from.
func (s *Service) Images(ctx context.Context) ([]image.Image, error) { return nil, errStub }
