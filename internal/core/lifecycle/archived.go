package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cubbyhq/cubby/internal/archive"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Archive destroys a sandbox after its files have been put into the
// archive storage and read back from there. The sandbox is stopped first. When
// the archive cannot be made the sandbox stays, stopped, with all its files,
// and the error says why. Unsupported when the daemon has no such storage.
//
// It takes as long as the files take to travel. Until its turn comes nothing is
// changed, and it ends with its caller; from then on it goes on without the
// caller, and ends with the service.
func (s *Sandboxes) Archive(ctx context.Context, id string) (archive.Manifest, error) {
	if err := s.cfg.Archives.Check(); err != nil {
		return archive.Manifest{}, err
	}
	b, err := s.cfg.Scope.Find(ctx, id)
	if err != nil {
		return archive.Manifest{}, err
	}
	// Before the lock: nobody waits for a sandbox that waits for its turn.
	done, err := s.cfg.Archives.Turn(ctx, b.Tenant)
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
		if b, err = s.halt(ctx, b, DefaultGrace, requested()); err != nil {
			return archive.Manifest{}, err
		}
	case sandbox.Stopped:
	default:
		return archive.Manifest{}, errs.E(errs.WrongState, "the sandbox is %s: there is nothing to archive", b.State)
	}
	m, err := s.archive(ctx, b)
	if err != nil {
		info := errs.Public(err)
		s.cfg.Recorder.Note(context.WithoutCancel(ctx), event.New(b.UID, scope.Actor(ctx), event.ArchiveFailed{Reason: info.Message}))
		return m, errs.E(info.Kind, "%s; the sandbox is stopped and keeps its files", info.Message).Hint("%s", info.Hint).
			RetryAfter(info.RetryAfter).Because(fmt.Errorf("archive sandbox %s: %w", b.ID, err))
	}
	s.cfg.Recorder.Note(context.WithoutCancel(ctx), event.New(b.UID, scope.Actor(ctx), event.Archived{Archive: m.Name, Bytes: m.Bytes()}))
	_, err = s.destroy(ctx, b, destruction{why: requested()})
	return m, err
}

// archive puts the files of a stopped sandbox, whose lock is held, into the
// storage. Its caller has the turn.
func (s *acts) archive(ctx context.Context, b sandbox.Sandbox) (archive.Manifest, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(s.cfg.Gate.Context(), cancel)()
	tree, done, err := s.tenants.Files(ctx, b)
	if err != nil {
		return archive.Manifest{}, err
	}
	defer done()
	m, err := s.cfg.Archives.Put(ctx, b, tree.Archive)
	if err != nil && s.cfg.Gate.Context().Err() != nil {
		return m, errors.Join(gate.ErrShuttingDown(), err)
	}
	return m, err
}

// restore puts the files of an archive on a new disk. Its caller has the turn.
func (s *acts) restore(ctx context.Context, b sandbox.Sandbox, m archive.Manifest) error {
	tree, done, err := s.tenants.Files(ctx, b)
	if err != nil {
		return err
	}
	defer done()
	return s.cfg.Archives.Restore(ctx, m, func(ctx context.Context, path string, r io.Reader) error {
		return tree.Restore(ctx, path, r, b.Spec.User)
	})
}

// mayUnpack refuses an archive with files that other sandboxes would lose: they
// share the directory that these would be put into.
func mayUnpack(b sandbox.Sandbox, m archive.Manifest) error {
	for _, p := range m.Parts {
		if b.FilesTenant() != "" && p.Path == sandbox.WorkspaceDir {
			return errs.E(errs.SharedFiles, "restore: the archive has a %s of its own, and the sandbox would share that of its tenant", sandbox.WorkspaceDir).
				Hint("create it with shared_files: false")
		}
	}
	return nil
}

// diskIsKept refuses other files for an id that has some; field is what asks for
// them.
func diskIsKept(field string) error {
	return errs.E(errs.Conflict, "%s: a disk is kept under this id", field).
		Hint("create a sandbox without other files to go on with that disk, or purge the sandbox first")
}
