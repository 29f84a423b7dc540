package guestd

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/api/gen/cubby/guest/v1/guestv1connect"
	"github.com/cubbyhq/cubby/internal/filetree"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// fileService implements the file methods of the guest service. What they mean
// is package filetree's matter; this is the wire.
//
// Handlers return errors of package errs (proc.Classify names an errno), never
// connect errors; raw paths answer with writeError.
type fileService struct {
	guestv1connect.UnimplementedGuestServiceHandler
	cfg  Config
	tree *filetree.Tree
}

func newFileService(cfg Config) *fileService {
	return &fileService{
		cfg: cfg,
		tree: filetree.Whole(filetree.Options{
			Owner: func(user string) (uid, gid uint32, err error) {
				a, err := proc.LookupAccount(user)
				return a.UID, a.GID, err
			},
			MapPath: cfg.MapPath,
		}),
	}
}

// Stat implements the guest service.
func (f *fileService) Stat(ctx context.Context, r *connect.Request[guestv1.StatRequest]) (*connect.Response[guestv1.StatResponse], error) {
	file, err := f.tree.Stat(ctx, r.Msg.GetPath(), r.Msg.GetFollow())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&guestv1.StatResponse{File: wireFile(file)}), nil
}

// A batch of a listing is sent when it has this many entries or bytes of text.
const (
	listBatch = 256
	listBytes = 64 << 10
)

// ListDir implements the guest service.
func (f *fileService) ListDir(ctx context.Context, r *connect.Request[guestv1.ListDirRequest], out *connect.ServerStream[guestv1.ListDirResponse]) error {
	var batch []*guestv1.File
	size := 0
	for file, err := range f.tree.ListFiles(ctx, r.Msg.GetPath(), r.Msg.GetRecursive()) {
		if err != nil {
			return err
		}
		batch = append(batch, wireFile(file))
		size += len(file.Path) + len(file.Target)
		if len(batch) < listBatch && size < listBytes {
			continue
		}
		if err := out.Send(&guestv1.ListDirResponse{Files: batch}); err != nil {
			return err
		}
		batch, size = nil, 0
	}
	// The last one may be empty: it tells an empty directory from a stream
	// that broke.
	return out.Send(&guestv1.ListDirResponse{Files: batch})
}

// MakeDir implements the guest service.
func (f *fileService) MakeDir(ctx context.Context, r *connect.Request[guestv1.MakeDirRequest]) (*connect.Response[guestv1.MakeDirResponse], error) {
	m := r.Msg
	file, err := f.tree.MakeDir(ctx, m.GetPath(), fs.FileMode(m.GetMode()), m.GetParents(), m.GetUser())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&guestv1.MakeDirResponse{File: wireFile(file)}), nil
}

// Rename implements the guest service.
func (f *fileService) Rename(ctx context.Context, r *connect.Request[guestv1.RenameRequest]) (*connect.Response[guestv1.RenameResponse], error) {
	m := r.Msg
	file, err := f.tree.Rename(ctx, m.GetFrom(), m.GetTo(), m.GetReplace())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&guestv1.RenameResponse{File: wireFile(file)}), nil
}

// Remove implements the guest service.
func (f *fileService) Remove(ctx context.Context, r *connect.Request[guestv1.RemoveRequest]) (*connect.Response[guestv1.RemoveResponse], error) {
	if err := f.tree.Remove(ctx, r.Msg.GetPath(), r.Msg.GetRecursive()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&guestv1.RemoveResponse{}), nil
}

// wireFile describes a file. Names are bytes to Linux and text to the
// protocol: what is not UTF-8 is shown with replacement characters.
func wireFile(f sandbox.File) *guestv1.File {
	return &guestv1.File{
		Path:    strings.ToValidUTF8(f.Path, "\uFFFD"),
		Type:    wireTypes[f.Type],
		Size:    f.Size,
		Mode:    uint32(f.Mode.Perm()),
		Uid:     f.UID,
		Gid:     f.GID,
		ModTime: timestamppb.New(f.ModTime),
		Target:  strings.ToValidUTF8(f.Target, "\uFFFD"),
	}
}

var wireTypes = map[sandbox.FileType]guestv1.FileType{
	sandbox.RegularFile: guestv1.FileType_FILE_TYPE_REGULAR,
	sandbox.Directory:   guestv1.FileType_FILE_TYPE_DIRECTORY,
	sandbox.Symlink:     guestv1.FileType_FILE_TYPE_SYMLINK,
	sandbox.OtherFile:   guestv1.FileType_FILE_TYPE_OTHER,
}

// gone says that nobody waits for the answer any more.
func gone(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
