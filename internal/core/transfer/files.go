// Package transfer carries files into sandboxes and out of them: single ones and
// directories, archives, exports, imports, and what the archive storage keeps. It
// reaches a sandbox's files through an [Access] that it is given, and knows
// neither how nor whether the sandbox runs.
package transfer

import (
	"context"
	"io"
	"io/fs"
	"iter"

	"github.com/cubbyhq/cubby/internal/core/history"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Access is one use of a sandbox's files.
type Access struct {
	sandbox.Files
	Box  sandbox.Sandbox
	Done func() // ends the use
}

// Files reads and writes the files of the caller's sandboxes. Paths are absolute
// inside the sandbox or relative to /workspace. The files of a running sandbox
// are reached through its agent, those of a stopped one on its disk: there only
// /workspace and /home/sandbox exist, and of a tenant's also /mnt/user-data.
type Files struct {
	open     func(ctx context.Context, id string) (*Access, error)
	recorder *history.Recorder
	packing  *packing
}

// NewFiles returns Files that reach those of a sandbox through open, which
// resolves its id, and pack archives on half of so many CPUs.
func NewFiles(open func(ctx context.Context, id string) (*Access, error), recorder *history.Recorder, cpus int) *Files {
	return &Files{open: open, recorder: recorder, packing: newPacking(cpus)}
}

// withFile runs fn on a path of a sandbox.
func withFile[T any](ctx context.Context, f *Files, id, name string, fn func(a *Access, name string) (T, error)) (T, error) {
	var none T
	name, err := sandbox.ResolvePath(name)
	if err != nil {
		return none, err
	}
	a, err := f.open(ctx, id)
	if err != nil {
		return none, err
	}
	defer a.Done()
	return fn(a, name)
}

// Stat describes one path; follow resolves a symlink at its end.
func (f *Files) Stat(ctx context.Context, id, name string, follow bool) (sandbox.File, error) {
	return withFile(ctx, f, id, name, func(a *Access, name string) (sandbox.File, error) {
		return a.Stat(ctx, name, follow)
	})
}

// List lists a directory, with recursive everything below it.
func (f *Files) List(ctx context.Context, id, name string, recursive bool) iter.Seq2[sandbox.File, error] {
	return func(yield func(sandbox.File, error) bool) {
		_, err := withFile(ctx, f, id, name, func(a *Access, name string) (bool, error) {
			for found, err := range a.ListFiles(ctx, name, recursive) {
				if err != nil {
					return false, err
				}
				if !yield(found, nil) {
					return true, nil
				}
			}
			return true, nil
		})
		if err != nil {
			yield(sandbox.File{}, err)
		}
	}
}

// Read streams length bytes of a regular file from offset, or all to its
// end when length is negative. The caller closes the reader.
func (f *Files) Read(ctx context.Context, id, name string, offset, length int64) (io.ReadCloser, sandbox.File, error) {
	if offset < 0 {
		return nil, sandbox.File{}, errs.E(errs.Invalid, "an offset is not negative")
	}
	name, err := sandbox.ResolvePath(name)
	if err != nil {
		return nil, sandbox.File{}, err
	}
	a, err := f.open(ctx, id)
	if err != nil {
		return nil, sandbox.File{}, err
	}
	r, found, err := a.Read(ctx, name, offset, length)
	if err != nil {
		a.Done()
		return nil, sandbox.File{}, err
	}
	return InUse(r, a.Done), found, nil
}

// Write writes what r gives. A new file belongs to the sandbox's user, an
// existing one to whom it belonged; w.User makes it somebody's.
func (f *Files) Write(ctx context.Context, id, name string, r io.Reader, w sandbox.FileWrite) (sandbox.File, error) {
	return withFile(ctx, f, id, name, func(a *Access, name string) (sandbox.File, error) {
		w.Maker = a.Box.Spec.User
		made, err := a.Write(ctx, name, r, w)
		if err == nil {
			f.recorder.Note(ctx, event.New(a.Box.UID, scope.Actor(ctx), event.FileWrite{Path: made.Path, Size: made.Size}))
		}
		return made, err
	})
}

// MakeDir makes a directory. Mode 0 is 0755.
func (f *Files) MakeDir(ctx context.Context, id, name string, mode fs.FileMode, parents bool) (sandbox.File, error) {
	return withFile(ctx, f, id, name, func(a *Access, name string) (sandbox.File, error) {
		made, err := a.MakeDir(ctx, name, mode, parents, a.Box.Spec.User)
		if err == nil {
			f.recorder.Note(ctx, event.New(a.Box.UID, scope.Actor(ctx), event.MakeDir{Path: made.Path}))
		}
		return made, err
	})
}

// Move renames; without replace an existing target is a Conflict.
func (f *Files) Move(ctx context.Context, id, from, to string, replace bool) (sandbox.File, error) {
	to, err := sandbox.ResolvePath(to)
	if err != nil {
		return sandbox.File{}, err
	}
	return withFile(ctx, f, id, from, func(a *Access, from string) (sandbox.File, error) {
		made, err := a.Rename(ctx, from, to, replace)
		if err == nil {
			f.recorder.Note(ctx, event.New(a.Box.UID, scope.Actor(ctx), event.FileMove{From: from, To: to}))
		}
		return made, err
	})
}

// Remove removes a file or, with recursive, a tree.
func (f *Files) Remove(ctx context.Context, id, name string, recursive bool) error {
	_, err := withFile(ctx, f, id, name, func(a *Access, name string) (struct{}, error) {
		err := a.Remove(ctx, name, recursive)
		if err == nil {
			f.recorder.Note(ctx, event.New(a.Box.UID, scope.Actor(ctx), event.FileRemove{Path: name}))
		}
		return struct{}{}, err
	})
	return err
}
