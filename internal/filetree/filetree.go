// Package filetree carries out cubby's file API on a directory tree that
// somebody else can write to while it works: reading, atomic writing, listing,
// moving, removing, and tar in and out. The guest agent uses it on the whole
// file system of a sandbox ([Whole]); the host uses it on the disk of a
// stopped sandbox ([Confined]), where every name is resolved through os.Root
// and none can lead off the disk. Both therefore mean the same by the same
// call, and filetreetest proves it.
//
// It never opens devices, FIFOs or sockets, never follows a symbolic link at
// the end of a name that it creates, replaces or removes, and never holds a
// file's content in memory. It knows nothing of sandboxes' states, of HTTP or
// of disks.
package filetree

import (
	"context"
	"io"
	"io/fs"
	"iter"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Tree is the file API on one tree. Names are absolute, or relative to
// /workspace; they are cleaned before use. A Tree holds nothing open between
// calls and is safe for concurrent use.
type Tree struct {
	space space
	guard func() error
}

type space interface{}

// Mount says which directory of this machine stands for a path inside.
type Mount struct {
	Path string // inside: "/workspace"
	Dir  string // here
}

// Whole is the file system of this process as it is.
func Whole() *Tree { return &Tree{} }

// Confined is made of some directories only. Names and symbolic links that
// lead elsewhere are refused with errs.WrongState. The directories are opened
// for each call, so that they can be unmounted in between. guard, when not
// nil, is asked before everything that writes.
func Confined(guard func() error, mounts ...Mount) *Tree { return &Tree{guard: guard} }

var errTodo = errs.E(errs.Unsupported, "not there yet")

// Stat describes a path; with follow what a symbolic link leads to.
func (t *Tree) Stat(ctx context.Context, name string, follow bool) (sandbox.File, error) {
	return sandbox.File{}, errTodo
}

// List gives the entries of a directory, with recursive those of every
// directory below.
func (t *Tree) List(ctx context.Context, name string, recursive bool) iter.Seq2[sandbox.File, error] {
	return func(yield func(sandbox.File, error) bool) { yield(sandbox.File{}, errTodo) }
}

// Read opens a regular file at an offset; length < 0 reads to its end.
func (t *Tree) Read(ctx context.Context, name string, offset, length int64) (io.ReadCloser, sandbox.File, error) {
	return nil, sandbox.File{}, errTodo
}

// Write replaces a file atomically, or appends to it.
func (t *Tree) Write(ctx context.Context, name string, r io.Reader, w sandbox.FileWrite) (sandbox.File, error) {
	return sandbox.File{}, errTodo
}

// MakeDir makes a directory; mode 0 is 0755.
func (t *Tree) MakeDir(ctx context.Context, name string, mode fs.FileMode, parents bool, user string) (sandbox.File, error) {
	return sandbox.File{}, errTodo
}

// Rename moves a file or directory.
func (t *Tree) Rename(ctx context.Context, from, to string, replace bool) (sandbox.File, error) {
	return sandbox.File{}, errTodo
}

// Remove removes a file, an empty directory, or with recursive everything.
func (t *Tree) Remove(ctx context.Context, name string, recursive bool) error { return errTodo }

// Archive streams a directory's content, or one file, as tar.
func (t *Tree) Archive(ctx context.Context, name string) (io.ReadCloser, error) { return nil, errTodo }

// Extract unpacks a tar stream into a directory, which is made when missing.
func (t *Tree) Extract(ctx context.Context, name string, r io.Reader, user string) error {
	return errTodo
}
