package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cubbyhq/cubby/internal/archive"
	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/tenancy"
)

// What goes to the archive storage or comes from there is held in pieces of
// megabytes and compressed.
var storingBound = tenancy.Bound{All: 5, Tenant: 2, Reserved: 2}

// archivedTrees are what an archive holds of a sandbox: all that its own disk
// keeps of its users. Its system files are not part of it, nor is what it
// shares with others of its tenant.
func archivedTrees(b sandbox.Sandbox) []string {
	if b.FilesTenant() != "" {
		return []string{sandbox.HomeDir}
	}
	return []string{sandbox.WorkspaceDir, sandbox.HomeDir}
}

// Archives is the files of destroyed sandboxes in the archive storage.
type Archives struct {
	storage *archive.Storage // nil: none
	gate    *gate.Gate
	now     func() time.Time
	turns   *tenancy.Turns
}

// NewArchives returns Archives in a storage; a nil one has none.
func NewArchives(storage *archive.Storage, g *gate.Gate, now func() time.Time) *Archives {
	return &Archives{storage: storage, gate: g, now: now, turns: tenancy.NewTurns(storingBound)}
}

// Check is Unsupported when the daemon has no archive storage.
func (a *Archives) Check() error {
	if a.storage == nil {
		return errs.E(errs.Unsupported, "this daemon has no archive storage").Hint("set archive-url; see docs/archives.md")
	}
	return nil
}

// Get describes an archive of a tenant, "" being the caller's own if any.
// NotFound when there is none of this name.
func (a *Archives) Get(ctx context.Context, tenant, name string) (archive.Manifest, error) {
	if err := a.Check(); err != nil {
		return archive.Manifest{}, err
	}
	if err := scope.MayName(ctx, tenant); err != nil {
		return archive.Manifest{}, err
	}
	return a.storage.Get(ctx, cmp.Or(tenant, auth.From(ctx).Tenant), name)
}

// Remove deletes an archive of a tenant, "" being the caller's own if any.
// NotFound when there is none of this name.
func (a *Archives) Remove(ctx context.Context, tenant, name string) error {
	if err := a.Check(); err != nil {
		return err
	}
	if err := scope.MayName(ctx, tenant); err != nil {
		return err
	}
	return a.storage.Remove(ctx, cmp.Or(tenant, auth.From(ctx).Tenant), name)
}

// Turn waits for one of the tenant's turns to exchange files with the storage,
// which [Archives.Put] and [Archives.Restore] need. Whoever waits holds nothing
// that others wait for.
func (a *Archives) Turn(ctx context.Context, tenant string) (done func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.gate.Context(), cancel)()
	if done, err = a.turns.Take(ctx, tenant); err != nil && a.gate.Context().Err() != nil {
		err = gate.ErrShuttingDown()
	}
	return done, err
}

// Put stores the files of a stopped sandbox; open gives one of its directories as
// a tar.
func (a *Archives) Put(ctx context.Context, b sandbox.Sandbox, open func(ctx context.Context, path string) (io.ReadCloser, error)) (archive.Manifest, error) {
	return a.storage.Put(ctx, archive.Manifest{
		Tenant: b.Tenant, ID: b.ID, UID: b.UID, Image: b.Spec.Image, Isolation: b.Spec.Isolation, CreatedAt: a.now().UTC(),
	}, archivedTrees(b), open)
}

// Restore gives what an archive holds, directory by directory, to unpack.
func (a *Archives) Restore(ctx context.Context, m archive.Manifest, unpack func(ctx context.Context, path string, r io.Reader) error) error {
	for _, p := range m.Parts {
		r, err := a.storage.Open(ctx, m, p)
		if err != nil {
			return err
		}
		err = unpack(ctx, p.Path, r)
		// Whether the archive is whole comes first: an archive that was tampered
		// with breaks in other ways too.
		if wrong := r.Finish(); wrong != nil {
			err = wrong
		}
		if err = errors.Join(err, r.Close()); err != nil {
			return fmt.Errorf("restore %s: %w", p.Path, err)
		}
	}
	return nil
}
