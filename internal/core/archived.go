package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cubbyhq/cubby/internal/archive"
	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// archivedTrees are what an archive holds of a sandbox: all that its own disk
// keeps of its users. Its system files are not part of it, nor is what it
// shares with others of its tenant.
func archivedTrees(b sandbox.Sandbox) []string {
	if b.Tenant != "" {
		return []string{sandbox.HomeDir}
	}
	return []string{sandbox.WorkspaceDir, sandbox.HomeDir}
}

// DestroyArchived destroys a sandbox after its files have been put into the
// archive storage and read back from there. The sandbox is stopped first. When
// the archive cannot be made the sandbox stays, stopped, with all its files,
// and the error says why. Unsupported when the daemon has no such storage.
//
// It takes as long as the files take to travel. Until its turn comes nothing is
// changed, and it ends with its caller; from then on it goes on without the
// caller, and ends with the service.
func (s *Service) DestroyArchived(ctx context.Context, id string) (archive.Manifest, error) {
	if s.cfg.Archives == nil {
		return archive.Manifest{}, noArchives()
	}
	b, err := s.scope.Find(ctx, id)
	if err != nil {
		return archive.Manifest{}, err
	}
	// Before the lock: nobody waits for a sandbox that waits for its turn.
	done, err := s.turnToStore(ctx, b.Tenant)
	if err != nil {
		return archive.Manifest{}, err
	}
	defer done()
	b, unlock, err := s.change(ctx, id)
	if err != nil {
		return archive.Manifest{}, err
	}
	defer unlock()
	switch b.State {
	case sandbox.Running, sandbox.Sleeping:
		if b, err = s.halt(ctx, b, DefaultGrace, ""); err != nil {
			return archive.Manifest{}, err
		}
	case sandbox.Stopped:
	default:
		return archive.Manifest{}, errs.E(errs.WrongState, "the sandbox is %s: there is nothing to archive", b.State)
	}
	m, err := s.archive(ctx, b)
	if err != nil {
		info := errs.Public(err)
		s.recorder.Note(context.WithoutCancel(ctx), event.New(b.UID, scope.Actor(ctx), event.ArchiveFailed{Reason: info.Message}))
		return m, errs.E(info.Kind, "%s; the sandbox is stopped and keeps its files", info.Message).Hint("%s", info.Hint).
			RetryAfter(info.RetryAfter).Because(fmt.Errorf("archive sandbox %s: %w", b.ID, err))
	}
	s.recorder.Note(context.WithoutCancel(ctx), event.New(b.UID, scope.Actor(ctx), event.Archived{Archive: m.Name, Bytes: m.Bytes()}))
	_, err = s.destroy(ctx, b, destruction{})
	return m, err
}

// archive puts the files of a stopped sandbox, whose lock is held, into the
// storage. Its caller has the turn.
func (s *Service) archive(ctx context.Context, b sandbox.Sandbox) (archive.Manifest, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(s.gate.Context(), cancel)()
	tree, err := s.tree(ctx, b)
	if err != nil {
		return archive.Manifest{}, err
	}
	defer s.trees.use(b, s.now)()
	m, err := s.cfg.Archives.Put(ctx, archive.Manifest{
		Tenant: b.Tenant, ID: b.ID, UID: b.UID, Image: b.Spec.Image, Isolation: b.Spec.Isolation, CreatedAt: s.now().UTC(),
	}, archivedTrees(b), func(ctx context.Context, path string) (io.ReadCloser, error) { return tree.Archive(ctx, path) })
	if err != nil && s.gate.Context().Err() != nil {
		return m, errors.Join(gate.ErrShuttingDown(), err)
	}
	return m, err
}

// turnToStore waits for one of the tenant's turns to exchange files with the
// archive storage. Whoever waits holds nothing that others wait for.
func (s *Service) turnToStore(ctx context.Context, tenant string) (done func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.gate.Context(), cancel)()
	if done, err = s.archiving.storing.Take(ctx, tenant); err != nil && s.gate.Context().Err() != nil {
		err = gate.ErrShuttingDown()
	}
	return done, err
}

// ArchiveByName describes an archive of a tenant, "" being the caller's own if
// any. NotFound when there is none of this name.
func (s *Service) ArchiveByName(ctx context.Context, tenant, name string) (archive.Manifest, error) {
	if s.cfg.Archives == nil {
		return archive.Manifest{}, noArchives()
	}
	if err := scope.MayName(ctx, tenant); err != nil {
		return archive.Manifest{}, err
	}
	return s.cfg.Archives.Get(ctx, cmp.Or(tenant, auth.From(ctx).Tenant), name)
}

// RemoveArchive deletes an archive of a tenant, "" being the caller's own if
// any. NotFound when there is none of this name.
func (s *Service) RemoveArchive(ctx context.Context, tenant, name string) error {
	if s.cfg.Archives == nil {
		return noArchives()
	}
	if err := scope.MayName(ctx, tenant); err != nil {
		return err
	}
	return s.cfg.Archives.Remove(ctx, cmp.Or(tenant, auth.From(ctx).Tenant), name)
}

// restore puts the files of an archive on a new disk. Its caller has the turn.
func (s *Service) restore(ctx context.Context, b sandbox.Sandbox, m archive.Manifest) error {
	tree, err := s.tree(ctx, b)
	if err != nil {
		return err
	}
	for _, p := range m.Parts {
		r, err := s.cfg.Archives.Open(ctx, m, p)
		if err != nil {
			return err
		}
		err = tree.Restore(ctx, p.Path, r, b.Spec.User)
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

func diskIsKept() error {
	return errs.E(errs.Conflict, "restore: a disk is kept under this id").
		Hint("create without restore to go on with that disk, or purge the sandbox first")
}

func noArchives() error {
	return errs.E(errs.Unsupported, "this daemon has no archive storage").Hint("set archive-url; see docs/archives.md")
}
