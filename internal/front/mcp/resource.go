package mcp

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
	"github.com/cubbyhq/cubby/internal/tools"
)

const (
	fileScheme   = "sandbox"
	outputScheme = "sandbox-output"
	// maxResource bounds a resource, in bytes: what answers link to can be read,
	// and an output of a cell has at most 16 MiB of base64.
	maxResource = 12 << 20
	// maxOutputText bounds stdout and stderr as resources.
	maxOutputText = 6 << 20
)

func (d *Door) addResources(s *sdk.Server) {
	s.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "file", Title: "A file of a session", URITemplate: fileScheme + "://{session_id}/{+path}",
		Description: "A regular file, by its absolute path: sandbox://SESSION_ID/workspace/output.csv. At most 12 MiB.",
	}, d.resource(readFileResource))
	s.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "output", Title: "What a call has shown", URITemplate: outputTemplate,
		Description: "One output of code, or all of stdout or stderr. Results of tools link to these.",
	}, d.resource(readOutputResource))
}

// reader reads the resource that has the path in a session.
type reader func(ctx context.Context, s *core.Service, id, path string) (kind string, data []byte, err error)

func (d *Door) resource(read reader) sdk.ResourceHandler {
	return func(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		u, err := url.Parse(req.Params.URI)
		if err != nil {
			return nil, sdk.ResourceNotFoundError(req.Params.URI)
		}
		_, err = tools.FindSession(ctx, d.core, u.Host, thread(ctx, req.Extra))
		var kind string
		var data []byte
		if err == nil {
			kind, data, err = read(ctx, d.core, u.Host, u.Path)
		}
		if err != nil {
			return nil, d.resourceError(ctx, req.Params.URI, err)
		}
		contents := &sdk.ResourceContents{URI: req.Params.URI, MIMEType: kind}
		if tools.IsText(data) {
			contents.Text = string(data)
		} else {
			contents.Blob = data
		}
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{contents}}, nil
	}
}

// resourceError is an error of the protocol: there is nothing else here.
func (d *Door) resourceError(ctx context.Context, uri string, err error) error {
	info := front.Public(err)
	switch info.Kind {
	case errs.NotFound:
		missing := sdk.ResourceNotFoundError(uri)
		if e, ok := errors.AsType[*jsonrpc.Error](missing); ok {
			e.Message += ": " + info.Message
		}
		return missing
	case errs.Internal:
		d.log.ErrorContext(ctx, "read a resource", telemetry.KeyRequest, front.RequestID(ctx), telemetry.KeyErr, err)
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: info.Message}
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: info.Message}
}

// fileURI names a file of a session, by its absolute path.
func fileURI(id, name string) string {
	u := url.URL{Scheme: fileScheme, Host: id, Path: path.Clean("/" + name)}
	return u.String()
}

func outputURI(id string, seq int64, name string) string {
	return outputScheme + "://" + id + "/" + strconv.FormatInt(seq, 10) + "/" + name
}

func readFileResource(ctx context.Context, s *core.Service, id, name string) (string, []byte, error) {
	f, err := s.Files().Stat(ctx, id, name, true)
	if err == nil && f.Size > maxResource {
		err = tools.TooLarge("the file", maxResource)
	}
	if err != nil {
		return "", nil, err
	}
	r, _, err := s.Files().Read(ctx, id, name, 0, -1)
	if err != nil {
		return "", nil, err
	}
	defer r.Close()
	data, ok, err := tools.AtMost(r, maxResource)
	if err == nil && !ok { // it grew
		err = tools.TooLarge("the file", maxResource)
	}
	return fileType(name, data), data, err
}

// fileType is the type of a file by its name, else by what it begins with.
func fileType(name string, data []byte) string {
	if kind := mime.TypeByExtension(path.Ext(name)); kind != "" {
		return kind
	}
	return http.DetectContentType(data)
}

// readOutputResource reads "/<seq>/<n>", "/<seq>/stdout" or "/<seq>/stderr".
func readOutputResource(ctx context.Context, s *core.Service, id, name string) (string, []byte, error) {
	number, name, _ := strings.Cut(strings.TrimPrefix(name, "/"), "/")
	seq, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return "", nil, errs.E(errs.NotFound, "no such output")
	}
	if name == sandbox.Stdout.String() || name == sandbox.Stderr.String() {
		r, err := s.Execs().Result(ctx, id, seq, live.OutputCaps{Stdout: maxOutputText, Stderr: maxOutputText})
		if err != nil {
			return "", nil, err
		}
		data, cut := r.Stdout, r.StdoutCut
		if name == sandbox.Stderr.String() {
			data, cut = r.Stderr, r.StderrCut
		}
		text := strings.ToValidUTF8(string(data), "\ufffd")
		if cut > 0 {
			text += fmt.Sprintf("\n\n... [truncated — %d bytes total, showing first %d]", int64(len(data))+cut, len(data))
		}
		return "text/plain", []byte(text), nil
	}
	n, err := strconv.Atoi(name)
	if err != nil {
		return "", nil, errs.E(errs.NotFound, "no such output")
	}
	e, err := s.Code().Execution(ctx, id, seq)
	if err != nil {
		return "", nil, err
	}
	list := tools.DisplaysOf(e)
	if n < 0 || n >= len(list) {
		return "", nil, errs.E(errs.NotFound, "no such output")
	}
	data, err := list[n].Bytes()
	if err != nil {
		return "", nil, err
	}
	if len(data) > maxResource {
		return "", nil, tools.TooLarge("the output", maxResource)
	}
	return list[n].Type, data, nil
}
