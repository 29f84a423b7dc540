package core

import (
	"context"
	"iter"

	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/transfer"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// access is one use of a sandbox's files.
type access struct {
	*transfer.Access
	run *live.Run // nil: the sandbox is stopped
}

// openFiles is open for those that transfer them.
func (s *Service) openFiles(ctx context.Context, id string) (*transfer.Access, error) {
	a, err := s.open(ctx, id)
	if err != nil {
		return nil, err
	}
	return a.Access, nil
}

// open gives access to a sandbox's files. The caller calls Done when it has
// finished.
func (s *Service) open(ctx context.Context, id string) (*access, error) {
	leave, err := s.gate.Enter(ctx)
	if err != nil {
		return nil, err
	}
	// Only the beginning is waited for when the service ends: streams end
	// with their caller.
	defer leave()
	b, err := s.scope.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	if b.State != sandbox.Stopped {
		// Also one that sleeps: what its memory has of the disk must stay true.
		b, r, done, err := s.live.Use(ctx, id)
		if err != nil {
			return nil, err
		}
		return &access{Access: &transfer.Access{Files: r.Guest, Box: b, Done: done}, run: r}, nil
	}
	tree, done, err := s.sandboxes.OpenStopped(ctx, b)
	if err != nil {
		return nil, err
	}
	return &access{Access: &transfer.Access{Files: tree, Box: b, Done: done}}, nil
}

// CheckWatch is the error that [Service.Watch] would begin with.
func (s *Service) CheckWatch(ctx context.Context, id, name string) error {
	_, _, done, err := s.live.Use(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	_, err = s.files.Stat(ctx, id, name, true)
	return err
}

// Watch reports changes below a directory of a running sandbox until ctx ends.
// It keeps the sandbox in use.
func (s *Service) Watch(ctx context.Context, id, name string, recursive bool) iter.Seq2[sandbox.FileChange, error] {
	return func(yield func(sandbox.FileChange, error) bool) {
		name, err := sandbox.ResolvePath(name)
		if err != nil {
			yield(sandbox.FileChange{}, err)
			return
		}
		_, r, done, err := s.live.Use(ctx, id)
		if err != nil {
			yield(sandbox.FileChange{}, err)
			return
		}
		defer done()
		for change, err := range r.Guest.Watch(ctx, name, recursive) {
			if !yield(change, err) || err != nil {
				return
			}
		}
	}
}

// ChargeRead counts a file that a door reads whole against the caller's memory
// until its request has ended.
func (s *Service) ChargeRead(ctx context.Context, bytes int64) error {
	return s.budget.ChargeOutput(ctx, bytes)
}
