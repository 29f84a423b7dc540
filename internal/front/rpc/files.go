package rpc

import (
	"context"
	"io"
	"path"
	"strings"
	"unicode/utf8"

	"connectrpc.com/connect"

	sandboxv1 "github.com/cubbyhq/cubby/api/gen/sandbox/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// WriteFile implements the service. Whatever stands in the way of one file is
// said in band, as agentbox does.
func (d *Door) WriteFile(ctx context.Context, req *connect.Request[sandboxv1.WriteFileRequest]) (*connect.Response[sandboxv1.WriteFileResponse], error) {
	in := req.Msg
	failed := func(err error) (*connect.Response[sandboxv1.WriteFileResponse], error) {
		why, err := d.inBand(ctx, in.GetSessionId(), err)
		return connect.NewResponse(&sandboxv1.WriteFileResponse{Error: why}), err
	}
	name, err := allowed(in.GetPath(), writable())
	if err != nil {
		return failed(err)
	}
	if mode := in.GetMode(); mode != "" && mode != "w" && mode != "a" {
		return failed(errs.E(errs.Invalid, "mode: neither w nor a"))
	}
	_, err = d.core.Files().Write(ctx, in.GetSessionId(), name, strings.NewReader(in.GetContent()),
		sandbox.FileWrite{Append: in.GetMode() == "a", Parents: true})
	if err != nil {
		return failed(err)
	}
	return connect.NewResponse(&sandboxv1.WriteFileResponse{Success: true}), nil
}

// ReadFile implements the service.
func (d *Door) ReadFile(ctx context.Context, req *connect.Request[sandboxv1.ReadFileRequest]) (*connect.Response[sandboxv1.ReadFileResponse], error) {
	in := req.Msg
	failed := func(err error) (*connect.Response[sandboxv1.ReadFileResponse], error) {
		why, err := d.inBand(ctx, in.GetSessionId(), err)
		return connect.NewResponse(&sandboxv1.ReadFileResponse{Error: why}), err
	}
	name, err := allowed(in.GetPath(), readable())
	if err != nil {
		return failed(err)
	}
	r, f, err := d.core.Files().Read(ctx, in.GetSessionId(), name, 0, maxText+1)
	if err != nil {
		return failed(err)
	}
	defer r.Close()
	if err := d.core.ChargeRead(ctx, min(f.Size, maxText)); err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(r, maxText+1))
	if err == nil { // it has grown, or its size is not known before
		err = d.core.ChargeRead(ctx, int64(len(content))-f.Size)
	}
	switch {
	case err != nil:
		return failed(err)
	case len(content) > maxText:
		return failed(errs.E(errs.TooLarge, "the file of %d bytes is larger than %d", f.Size, maxText))
	case !utf8.Valid(content):
		return failed(errs.E(errs.Invalid, "the file is not text in UTF-8"))
	}
	if err := d.weigh(ctx, req.Header(), content); err != nil {
		return failed(err)
	}
	whole := string(content)
	return connect.NewResponse(&sandboxv1.ReadFileResponse{Success: true, Content: &whole}), nil
}

// inBand is an error as agentbox's answers have it. What is cubby's own fault,
// and what may go better later, stays an error of the call. An unknown session
// is said before anything that is wrong with the path.
func (d *Door) inBand(ctx context.Context, id string, err error) (why *string, fault error) {
	info := errs.Public(err)
	switch info.Kind {
	case errs.Invalid, errs.NotFound, errs.Conflict, errs.Forbidden, errs.TooLarge, errs.WrongState, errs.Unsupported, errs.Exhausted, errs.OverQuota:
		said := sentence(info)
		if _, err := d.core.Sandboxes().Get(ctx, id); unknown(err) {
			said = missing(err)
		}
		return &said, nil
	case errs.Unauthenticated, errs.Unavailable, errs.Unready, errs.Timeout, errs.Canceled, errs.Internal:
	}
	return nil, err
}

// writable and readable are the trees that agentbox's calls reach; commands
// reach all that their user may.
func writable() []string { return []string{sandbox.WorkspaceDir, "/mnt/user-data/outputs"} }
func readable() []string { return []string{sandbox.WorkspaceDir, "/mnt/user-data"} }

// allowed resolves a path, which is relative to the workspace, and refuses one
// outside of the trees. A link that leads out of them leads to nothing that the
// sandbox's own commands could not read: the wall is the sandbox's.
func allowed(name string, trees []string) (string, error) {
	if name == "" {
		return "", errs.E(errs.Invalid, "path: required")
	}
	if !path.IsAbs(name) {
		name = path.Join(sandbox.WorkspaceDir, name)
	}
	name = path.Clean(name)
	for _, tree := range trees {
		if name == tree || strings.HasPrefix(name, tree+"/") {
			return name, nil
		}
	}
	return "", errs.E(errs.Forbidden, "Path not allowed")
}
