package guest

import (
	"context"
	"io/fs"
	"iter"
	"unicode/utf8"

	"connectrpc.com/connect"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Stat describes a path; with follow, what a symbolic link leads to.
func (c *Client) Stat(ctx context.Context, name string, follow bool) (sandbox.File, error) {
	if err := checkText(name); err != nil {
		return sandbox.File{}, err
	}
	res, err := c.rpc.Stat(ctx, connect.NewRequest(&guestv1.StatRequest{Path: name, Follow: follow}))
	if err != nil {
		return sandbox.File{}, fromWire(ctx, err)
	}
	return fromWireFile(res.Msg.GetFile()), nil
}

// ListFiles gives the entries of a directory, with recursive those of every
// directory below it, each directory before its content.
func (c *Client) ListFiles(ctx context.Context, name string, recursive bool) iter.Seq2[sandbox.File, error] {
	return func(yield func(sandbox.File, error) bool) {
		for in, err := range received(ctx, name, func(ctx context.Context) (*connect.ServerStreamForClient[guestv1.ListDirResponse], error) {
			return c.rpc.ListDir(ctx, connect.NewRequest(&guestv1.ListDirRequest{Path: name, Recursive: recursive}))
		}) {
			if err != nil {
				yield(sandbox.File{}, err)
				return
			}
			for _, f := range in.GetFiles() {
				if !yield(fromWireFile(f), nil) {
					return
				}
			}
		}
	}
}

// received gives the messages of a stream about a path, which ends with the loop.
func received[T any](
	ctx context.Context, name string, open func(context.Context) (*connect.ServerStreamForClient[T], error),
) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if err := checkText(name); err != nil {
			yield(nil, err)
			return
		}
		in, err := open(ctx)
		if err != nil {
			yield(nil, fromWire(ctx, err))
			return
		}
		defer func() {
			cancel()
			_ = in.Close()
		}()
		for in.Receive() {
			if !yield(in.Msg(), nil) {
				return
			}
		}
		if err := in.Err(); err != nil {
			yield(nil, fromWire(ctx, err))
		}
	}
}

// MakeDir makes a directory; mode 0 is 0755. With parents it makes those that
// are missing too, and is content with a directory that is there.
func (c *Client) MakeDir(ctx context.Context, name string, mode fs.FileMode, parents bool, user string) (sandbox.File, error) {
	if err := checkText(name, user); err != nil {
		return sandbox.File{}, err
	}
	res, err := c.rpc.MakeDir(ctx, connect.NewRequest(&guestv1.MakeDirRequest{
		Path: name, Mode: uint32(mode.Perm()), Parents: parents, User: user,
	}))
	if err != nil {
		return sandbox.File{}, fromWire(ctx, err)
	}
	return fromWireFile(res.Msg.GetFile()), nil
}

// Rename moves a file, directory or symbolic link to another name. A name that
// is taken is errs.Conflict without replace.
func (c *Client) Rename(ctx context.Context, from, to string, replace bool) (sandbox.File, error) {
	if err := checkText(from, to); err != nil {
		return sandbox.File{}, err
	}
	res, err := c.rpc.Rename(ctx, connect.NewRequest(&guestv1.RenameRequest{From: from, To: to, Replace: replace}))
	if err != nil {
		return sandbox.File{}, fromWire(ctx, err)
	}
	return fromWireFile(res.Msg.GetFile()), nil
}

// Remove removes a file, an empty directory, or with recursive a directory
// with all that is in it.
func (c *Client) Remove(ctx context.Context, name string, recursive bool) error {
	if err := checkText(name); err != nil {
		return err
	}
	_, err := c.rpc.Remove(ctx, connect.NewRequest(&guestv1.RemoveRequest{Path: name, Recursive: recursive}))
	return fromWire(ctx, err)
}

// Watch reports changes of a path, with recursive of everything below it,
// until ctx ends (the last error is ctx's) or the path goes away. The first
// operation is "ready": changes made after it are reported. The operation
// "overflow" says that some were lost.
func (c *Client) Watch(ctx context.Context, name string, recursive bool) iter.Seq2[sandbox.FileChange, error] {
	return func(yield func(sandbox.FileChange, error) bool) {
		for m, err := range received(ctx, name, func(ctx context.Context) (*connect.ServerStreamForClient[guestv1.WatchResponse], error) {
			return c.rpc.Watch(ctx, connect.NewRequest(&guestv1.WatchRequest{Path: name, Recursive: recursive}))
		}) {
			if err != nil {
				yield(sandbox.FileChange{}, err)
				return
			}
			change := sandbox.FileChange{Path: m.GetPath(), Op: m.GetOp(), Time: m.GetAt().AsTime()}
			if m.GetReady() {
				change.Path, change.Op = name, "ready"
			}
			if !yield(change, nil) {
				return
			}
		}
		yield(sandbox.FileChange{}, fromWire(ctx, errs.E(errs.Unavailable, "the watch ended")))
	}
}

func fromWireFile(f *guestv1.File) sandbox.File {
	return sandbox.File{
		Path:    f.GetPath(),
		Type:    fromWireType(f.GetType()),
		Size:    max(f.GetSize(), 0),
		Mode:    fs.FileMode(f.GetMode()) & fs.ModePerm,
		UID:     f.GetUid(),
		GID:     f.GetGid(),
		ModTime: f.GetModTime().AsTime(),
		Target:  f.GetTarget(),
	}
}

func fromWireType(t guestv1.FileType) sandbox.FileType {
	switch t {
	case guestv1.FileType_FILE_TYPE_REGULAR:
		return sandbox.RegularFile
	case guestv1.FileType_FILE_TYPE_DIRECTORY:
		return sandbox.Directory
	case guestv1.FileType_FILE_TYPE_SYMLINK:
		return sandbox.Symlink
	}
	return sandbox.OtherFile
}

// checkText refuses names that the protocol cannot carry.
func checkText(names ...string) error {
	for _, name := range names {
		if !utf8.ValidString(name) {
			return errs.E(errs.Invalid, "the path is not UTF-8")
		}
	}
	return nil
}
