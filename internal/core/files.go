package core

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"net"
	"path"
	"strings"

	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Paths are absolute inside the sandbox or relative to /workspace. The files
// of a running sandbox are reached through its agent, those of a stopped one
// on its disk: there only /workspace and /home/sandbox exist, and of a tenant's
// also /mnt/user-data.

// fileAPI is what a running sandbox's agent and a stopped one's disk have in
// common.
type fileAPI interface {
	Stat(ctx context.Context, name string, follow bool) (sandbox.File, error)
	ListFiles(ctx context.Context, name string, recursive bool) iter.Seq2[sandbox.File, error]
	Read(ctx context.Context, name string, offset, length int64) (io.ReadCloser, sandbox.File, error)
	Write(ctx context.Context, name string, r io.Reader, w sandbox.FileWrite) (sandbox.File, error)
	MakeDir(ctx context.Context, name string, mode fs.FileMode, parents bool, user string) (sandbox.File, error)
	Rename(ctx context.Context, from, to string, replace bool) (sandbox.File, error)
	Remove(ctx context.Context, name string, recursive bool) error
	Archive(ctx context.Context, name string) (io.ReadCloser, error)
	// Within is for names that must not lead out of a directory.
	ReadWithin(ctx context.Context, dir, name string, offset, length int64) (io.ReadCloser, sandbox.File, error)
	ArchiveWithin(ctx context.Context, dir, name string) (io.ReadCloser, error)
	Extract(ctx context.Context, name string, r io.Reader, user string) error
}

// access is one use of a sandbox's files.
type access struct {
	fileAPI
	b    sandbox.Sandbox
	run  *run   // nil: the sandbox is stopped
	done func() // ends the use
}

// files gives access to a sandbox's files. The caller calls done when it has
// finished.
func (s *Service) files(ctx context.Context, id string) (*access, error) {
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
	if b.State == sandbox.Running {
		_, r, err := s.findRunning(ctx, id)
		if err != nil {
			return nil, err
		}
		return &access{fileAPI: r.guest, b: b, run: r, done: r.open(ctx)}, nil
	}
	if b.State != sandbox.Stopped && b.State != sandbox.Sleeping {
		return nil, s.scope.NotRunning(b)
	}
	return s.filesOfStopped(ctx, b)
}

// filesOfStopped opens the disk of a stopped sandbox. Its lock keeps a start
// or destroy from coming between the look at the state and the mount.
func (s *Service) filesOfStopped(ctx context.Context, b sandbox.Sandbox) (*access, error) {
	unlock, err := s.ids.Lock(ctx, b.ID.Key())
	if err != nil {
		return nil, err
	}
	defer unlock()
	now, err := s.cfg.Store.SandboxByUID(ctx, b.UID)
	if err != nil {
		return nil, err
	}
	if now.State != b.State {
		return nil, errs.E(errs.Unavailable, "the sandbox was just %s", now.State).Hint("try again")
	}
	tree, err := s.tree(ctx, b)
	if err != nil {
		return nil, err
	}
	return &access{fileAPI: tree, b: b, done: s.trees.use(b, s.now)}, nil
}

// resolvePath makes a path absolute and refuses what no file system can hold.
func resolvePath(name string) (string, error) {
	if strings.ContainsRune(name, 0) {
		return "", errs.E(errs.Invalid, "a path has a NUL byte")
	}
	if len(name) > 4095 {
		return "", errs.E(errs.Invalid, "a path is longer than 4095 bytes")
	}
	if !path.IsAbs(name) {
		name = sandbox.WorkspaceDir + "/" + name
	}
	return path.Clean(name), nil
}

// withFile runs fn on a path of a sandbox.
func withFile[T any](ctx context.Context, s *Service, id, name string, fn func(a *access, name string) (T, error)) (T, error) {
	var none T
	name, err := resolvePath(name)
	if err != nil {
		return none, err
	}
	a, err := s.files(ctx, id)
	if err != nil {
		return none, err
	}
	defer a.done()
	return fn(a, name)
}

// Stat describes one path; follow resolves a symlink at its end.
func (s *Service) Stat(ctx context.Context, id, name string, follow bool) (sandbox.File, error) {
	return withFile(ctx, s, id, name, func(a *access, name string) (sandbox.File, error) {
		return a.Stat(ctx, name, follow)
	})
}

// ListFiles lists a directory, with recursive everything below it.
func (s *Service) ListFiles(ctx context.Context, id, name string, recursive bool) iter.Seq2[sandbox.File, error] {
	return func(yield func(sandbox.File, error) bool) {
		_, err := withFile(ctx, s, id, name, func(a *access, name string) (bool, error) {
			for f, err := range a.ListFiles(ctx, name, recursive) {
				if err != nil {
					return false, err
				}
				if !yield(f, nil) {
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

// ReadFile streams length bytes of a regular file from offset, or all to its
// end when length is negative. The caller closes the reader.
func (s *Service) ReadFile(ctx context.Context, id, name string, offset, length int64) (io.ReadCloser, sandbox.File, error) {
	if offset < 0 {
		return nil, sandbox.File{}, errs.E(errs.Invalid, "an offset is not negative")
	}
	name, err := resolvePath(name)
	if err != nil {
		return nil, sandbox.File{}, err
	}
	a, err := s.files(ctx, id)
	if err != nil {
		return nil, sandbox.File{}, err
	}
	r, f, err := a.Read(ctx, name, offset, length)
	if err != nil {
		a.done()
		return nil, sandbox.File{}, err
	}
	return &inUse{r, a.done}, f, nil
}

// inUse keeps a sandbox in use until its stream is closed. It keeps the
// stream's own WriteTo, which saves a copy.
type inUse struct {
	io.ReadCloser
	done func()
}

func (u *inUse) WriteTo(w io.Writer) (int64, error) {
	if wt, ok := u.ReadCloser.(io.WriterTo); ok {
		return wt.WriteTo(w)
	}
	return io.Copy(w, struct{ io.Reader }{u.ReadCloser})
}

func (u *inUse) Close() error {
	defer u.done()
	return u.ReadCloser.Close()
}

// WriteFile writes what r gives. A new file belongs to the sandbox's user, an
// existing one to whom it belonged; w.User makes it somebody's.
func (s *Service) WriteFile(ctx context.Context, id, name string, r io.Reader, w sandbox.FileWrite) (sandbox.File, error) {
	return withFile(ctx, s, id, name, func(a *access, name string) (sandbox.File, error) {
		w.Maker = a.b.Spec.User
		f, err := a.Write(ctx, name, r, w)
		if err == nil {
			s.recorder.Note(ctx, event.New(a.b.UID, scope.Actor(ctx), event.FileWrite{Path: f.Path, Size: f.Size}))
		}
		return f, err
	})
}

// MakeDir makes a directory. Mode 0 is 0755.
func (s *Service) MakeDir(ctx context.Context, id, name string, mode fs.FileMode, parents bool) (sandbox.File, error) {
	return withFile(ctx, s, id, name, func(a *access, name string) (sandbox.File, error) {
		f, err := a.MakeDir(ctx, name, mode, parents, a.b.Spec.User)
		if err == nil {
			s.recorder.Note(ctx, event.New(a.b.UID, scope.Actor(ctx), event.MakeDir{Path: f.Path}))
		}
		return f, err
	})
}

// MoveFile renames; without replace an existing target is a Conflict.
func (s *Service) MoveFile(ctx context.Context, id, from, to string, replace bool) (sandbox.File, error) {
	to, err := resolvePath(to)
	if err != nil {
		return sandbox.File{}, err
	}
	return withFile(ctx, s, id, from, func(a *access, from string) (sandbox.File, error) {
		f, err := a.Rename(ctx, from, to, replace)
		if err == nil {
			s.recorder.Note(ctx, event.New(a.b.UID, scope.Actor(ctx), event.FileMove{From: from, To: to}))
		}
		return f, err
	})
}

// RemoveFile removes a file or, with recursive, a tree.
func (s *Service) RemoveFile(ctx context.Context, id, name string, recursive bool) error {
	_, err := withFile(ctx, s, id, name, func(a *access, name string) (struct{}, error) {
		err := a.Remove(ctx, name, recursive)
		if err == nil {
			s.recorder.Note(ctx, event.New(a.b.UID, scope.Actor(ctx), event.FileRemove{Path: name}))
		}
		return struct{}{}, err
	})
	return err
}

// CheckWatch is the error that [Service.Watch] would begin with.
func (s *Service) CheckWatch(ctx context.Context, id, name string) error {
	if _, _, err := s.findRunning(ctx, id); err != nil {
		return err
	}
	_, err := s.Stat(ctx, id, name, true)
	return err
}

// Watch reports changes below a directory of a running sandbox until ctx ends.
// It keeps the sandbox in use.
func (s *Service) Watch(ctx context.Context, id, name string, recursive bool) iter.Seq2[sandbox.FileChange, error] {
	return func(yield func(sandbox.FileChange, error) bool) {
		name, err := resolvePath(name)
		if err != nil {
			yield(sandbox.FileChange{}, err)
			return
		}
		_, r, err := s.findRunning(ctx, id)
		if err != nil {
			yield(sandbox.FileChange{}, err)
			return
		}
		defer r.open(ctx)()
		for change, err := range r.guest.Watch(ctx, name, recursive) {
			if !yield(change, err) || err != nil {
				return
			}
		}
	}
}

// DialPort opens a stream to a port on the sandbox's loopback. It keeps the
// sandbox in use until it is closed.
func (s *Service) DialPort(ctx context.Context, id string, port int) (net.Conn, error) {
	if err := sandbox.ValidatePort(port); err != nil {
		return nil, err
	}
	_, r, err := s.findRunning(ctx, id)
	if err != nil {
		return nil, err
	}
	done := r.open(ctx)
	conn, err := r.guest.DialPort(ctx, port)
	if err != nil {
		done()
		return nil, err
	}
	return &dialed{conn, done}, nil
}

// dialed keeps a sandbox in use until the connection is closed.
type dialed struct {
	net.Conn
	done func()
}

func (d *dialed) Close() error {
	defer d.done()
	return d.Conn.Close()
}

// CloseWrite ends the direction to the sandbox, where the stream can.
func (d *dialed) CloseWrite() error {
	if c, ok := d.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errs.E(errs.Unsupported, "the stream has one end for both directions")
}
