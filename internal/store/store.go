// Package store keeps cubby's state.
package store

import (
	"context"
	"log/slog"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

var errStub = errs.E(errs.Internal, "not built yet")

// Config is what a Store needs.
type Config struct {
	Path string // the database file; its directory must exist
	Now  func() time.Time
	Log  *slog.Logger
}

// Store is open state.
type Store struct{}

// Open opens or makes the database.
func Open(ctx context.Context, c Config) (*Store, error) { return nil, errStub }

// Run keeps relaxed writes from staying unsynced for more than a second.
func (s *Store) Run(ctx context.Context) error { return errStub }

// Close closes the store.
func (s *Store) Close() error { return errStub }

// Ping tells whether the database answers.
func (s *Store) Ping(ctx context.Context) error { return errStub }

// CreateSandbox adds a row in state Creating.
func (s *Store) CreateSandbox(ctx context.Context, b sandbox.Sandbox, events ...sandbox.Event) error {
	return errStub
}

func (s *Store) Sandbox(ctx context.Context, id sandbox.ID) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{}, errStub
}

func (s *Store) SandboxByUID(ctx context.Context, uid sandbox.UID) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{}, errStub
}

// Query selects sandboxes. The zero value selects all that are not destroyed.
type Query struct {
	Tenant   *string           // nil: any
	Labels   map[string]string // all must match
	States   []sandbox.State   // none: all but Destroyed
	External sandbox.External  // fields that are not empty must match
	After    string            // the cursor of the page before
	Limit    int               // 0: 100, at most 1000
}

func (s *Store) Sandboxes(ctx context.Context, q Query) (items []sandbox.Sandbox, next string, err error) {
	return nil, "", errStub
}

// Change is what changes together with a state.
type Change struct {
	At          time.Time // zero: now
	Reason      string    // replaces the old one
	Handle      []byte    // nil keeps, empty clears
	ImageDigest string    // "" keeps
	DiskUID     sandbox.UID
	// KeepDisk, with a move to Destroyed or Failed, keeps the disk for the
	// next sandbox with this id, in the same transaction.
	KeepDisk bool
	// Claim, if not nil, is completed in the same transaction.
	Claim  *Claim
	Events []sandbox.Event
}

func (s *Store) Move(ctx context.Context, uid sandbox.UID, to sandbox.State, c Change) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{}, errStub
}

func (s *Store) SetHandle(ctx context.Context, uid sandbox.UID, handle []byte) error { return errStub }

func (s *Store) UpdateSpec(ctx context.Context, uid sandbox.UID, change func(*sandbox.Spec) error, events ...sandbox.Event) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{}, errStub
}

func (s *Store) Touch(ctx context.Context, uid sandbox.UID, at time.Time) error { return errStub }

// CreateExec adds a pending exec and allocates its seq.
func (s *Store) CreateExec(ctx context.Context, e sandbox.Exec, events ...sandbox.Event) (seq int64, err error) {
	return 0, errStub
}

func (s *Store) StartExec(ctx context.Context, box sandbox.UID, seq int64, at time.Time, events ...sandbox.Event) error {
	return errStub
}

// FinishExec reports whether this call was the first to finish the exec; the
// others change nothing.
func (s *Store) FinishExec(ctx context.Context, box sandbox.UID, seq int64, exit sandbox.Exit, status sandbox.ExecStatus, at time.Time, events ...sandbox.Event) (first bool, err error) {
	return false, errStub
}

// Exec returns one exec, without its env.
func (s *Store) Exec(ctx context.Context, box sandbox.UID, seq int64) (sandbox.Exec, error) {
	return sandbox.Exec{}, errStub
}

// ExecQuery selects execs of one sandbox in ascending order of seq.
type ExecQuery struct {
	AfterSeq   int64
	Limit      int // 0: 100, at most 1000
	Unfinished bool
}

func (s *Store) Execs(ctx context.Context, box sandbox.UID, q ExecQuery) ([]sandbox.Exec, error) {
	return nil, errStub
}

// UnfinishedExecs returns those of all sandboxes; pending ones with their env.
func (s *Store) UnfinishedExecs(ctx context.Context) ([]sandbox.Exec, error) { return nil, errStub }

// ExecEnv returns the env of an exec that has not started.
func (s *Store) ExecEnv(ctx context.Context, box sandbox.UID, seq int64) (map[string]string, error) {
	return nil, errStub
}

// KeptDisk is a disk that outlived its sandbox.
type KeptDisk struct {
	IDKey    string // sandbox.ID.Key
	Tenant   string
	External sandbox.External
	DiskUID  sandbox.UID
	At       time.Time
}

func (s *Store) KeepDisk(ctx context.Context, d KeptDisk) error { return errStub }

// TakeKeptDisk finds the disk that a new sandbox with this id takes over. The
// row goes when CreateSandbox stores a sandbox with that DiskUID, so a crash
// between the two loses nothing.
func (s *Store) TakeKeptDisk(ctx context.Context, idKey, tenant string, owner sandbox.External) (uid sandbox.UID, ok bool, err error) {
	return "", false, errStub
}

func (s *Store) KeptDisks(ctx context.Context) ([]KeptDisk, error) { return nil, errStub }

// DropKeptDisk forgets a kept disk and returns it, for the caller to remove.
func (s *Store) DropKeptDisk(ctx context.Context, idKey string) (d KeptDisk, ok bool, err error) {
	return KeptDisk{}, false, errStub
}

// Claim is the hold on an idempotency key.
type Claim struct {
	s      *Store
	result string
	done   bool
}

// Result is what a former request with this key was completed with; ok is
// false when the caller is the first and has to do the work.
func (c *Claim) Result() (result string, ok bool) { return c.result, c.done }

// Complete and Release end a claim; a completed one stays.
func (c *Claim) Complete(ctx context.Context, result string) error { return errStub }
func (c *Claim) Release(ctx context.Context) error                 { return errStub }

// Idempotency claims a key. The same key with another request is a Conflict,
// and so is one whose first request still runs (with RetryAfter).
func (s *Store) Idempotency(ctx context.Context, principal, key, requestHash string) (*Claim, error) {
	return nil, errStub
}

func (s *Store) AppendEvent(ctx context.Context, e sandbox.Event) (cursor int64, err error) {
	return 0, errStub
}

// Events returns events after a cursor, ascending. An empty box means all.
func (s *Store) Events(ctx context.Context, box sandbox.UID, after int64, limit int) ([]sandbox.Event, error) {
	return nil, errStub
}

// Prune forgets what ended before a time.
func (s *Store) Prune(ctx context.Context, before time.Time) ([]sandbox.UID, error) {
	return nil, errStub
}
