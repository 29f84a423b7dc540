package core

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"net"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Paths are absolute inside the sandbox or relative to /workspace. The files
// of a running sandbox are reached through its agent, those of a stopped one
// on its disk: there only /workspace and /home/sandbox exist.

// Stat describes one path; follow resolves a symlink at its end.
func (s *Service) Stat(ctx context.Context, id, path string, follow bool) (sandbox.File, error) {
	return sandbox.File{}, errStub
}

// ListFiles lists a directory, with recursive everything below it.
func (s *Service) ListFiles(ctx context.Context, id, path string, recursive bool) iter.Seq2[sandbox.File, error] {
	return func(yield func(sandbox.File, error) bool) { yield(sandbox.File{}, errStub) }
}

// ReadFile streams length bytes of a regular file from offset, or all to its
// end when length is negative. The caller closes the reader.
func (s *Service) ReadFile(ctx context.Context, id, path string, offset, length int64) (io.ReadCloser, sandbox.File, error) {
	return nil, sandbox.File{}, errStub
}

// WriteFile writes what r gives. w.User empty is the sandbox's user.
func (s *Service) WriteFile(ctx context.Context, id, path string, r io.Reader, w sandbox.FileWrite) (sandbox.File, error) {
	return sandbox.File{}, errStub
}

// MakeDir makes a directory. Mode 0 is 0755.
func (s *Service) MakeDir(ctx context.Context, id, path string, mode fs.FileMode, parents bool) (sandbox.File, error) {
	return sandbox.File{}, errStub
}

// MoveFile renames; without replace an existing target is a Conflict.
func (s *Service) MoveFile(ctx context.Context, id, from, to string, replace bool) (sandbox.File, error) {
	return sandbox.File{}, errStub
}

// RemoveFile removes a file or, with recursive, a tree.
func (s *Service) RemoveFile(ctx context.Context, id, path string, recursive bool) error {
	return errStub
}

// Watch reports changes below a directory of a running sandbox until ctx ends.
func (s *Service) Watch(ctx context.Context, id, path string, recursive bool) iter.Seq2[sandbox.FileChange, error] {
	return func(yield func(sandbox.FileChange, error) bool) { yield(sandbox.FileChange{}, errStub) }
}

// Archive streams a directory or file. The caller closes the reader.
func (s *Service) Archive(ctx context.Context, id, path string, format sandbox.ArchiveFormat) (io.ReadCloser, error) {
	return nil, errStub
}

// Extract unpacks a tar, plain or gzipped, into a directory.
func (s *Service) Extract(ctx context.Context, id, path string, r io.Reader) error { return errStub }

// DialPort opens a stream to a port on the sandbox's loopback.
func (s *Service) DialPort(ctx context.Context, id string, port int) (net.Conn, error) {
	return nil, errStub
}
