// Package rpc is the gRPC door: agentbox's sandbox.v1.SandboxService, served
// as gRPC, gRPC-Web and Connect. It keeps agentbox's answers in band where
// agentbox gives them so, and streams what agentbox collects. It has no session
// of its own: an agentbox session is a sandbox with its label.
package rpc

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"

	"github.com/cubbyhq/cubby/api/gen/sandbox/v1/sandboxv1connect"
	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	// maxMessage bounds a request; agentbox's own bound, gRPC's default, is
	// 4 MiB.
	maxMessage       = 32 << 20
	maxHealthMessage = 4 << 10 // of callers without a token
	// maxText bounds each stream of an Exec's answer and the content of a
	// ReadFile's. gRPC's own clients accept 4 MiB unless they are told of more.
	maxText = 16 << 20
	// idleTimeout destroys a session that nobody uses (agentbox's
	// SESSION_TIMEOUT).
	idleTimeout = 1800 * time.Second
	// label marks the sandboxes that are agentbox sessions.
	label = "agentbox"
	// Interface is the way through which the door makes sandboxes.
	Interface admission.Interface = "agentbox"
)

// Limits are what agentbox documents for its sandboxes.
func Limits() sandbox.Limits { return sandbox.Limits{MemoryBytes: 4 << 30, CPUs: 4} }

// Config is what the door needs.
type Config struct {
	Core *core.Service
	Log  *slog.Logger
	// Life ends streams when the daemon drains.
	Life context.Context //nolint:containedctx // the daemon's, not a request's
}

// Door serves the service.
type Door struct {
	sandboxv1connect.UnimplementedSandboxServiceHandler
	core *core.Service
	log  *slog.Logger
	life context.Context //nolint:containedctx // as in Config
}

// Register adds the service, gRPC's reflection and its health service.
func Register(mux *http.ServeMux, c Config) {
	d := &Door{core: c.Core, log: c.Log, life: c.Life}
	options := connect.WithHandlerOptions(
		connect.WithInterceptors(statuses{d}),
		connect.WithReadMaxBytes(maxMessage),
	)
	service := sandboxv1connect.SandboxServiceName
	handle := func(path string, h http.Handler) { mux.Handle(path, asText(h)) }
	handle(sandboxv1connect.NewSandboxServiceHandler(d, options))
	handle(grpchealth.NewHandler(health{c.Life}, options, connect.WithInterceptors(newEndings(c.Life)), connect.WithReadMaxBytes(maxHealthMessage)))
	reflector := grpcreflect.NewStaticReflector(service, grpchealth.HealthV1ServiceName)
	handle(grpcreflect.NewHandlerV1(reflector, options))
	handle(grpcreflect.NewHandlerV1Alpha(reflector, options))
}

// Open reports whether a request needs no token: what looks after the daemon
// asks after its health and has none.
func Open(r *http.Request) bool {
	return r.URL.Path == "/"+grpchealth.HealthV1ServiceName+"/Check"
}

// Spoken reports whether a request is for this door.
func Spoken(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, "/"+sandboxv1connect.SandboxServiceName+"/") || strings.HasPrefix(r.URL.Path, "/grpc.")
}

// WriteError answers a request that did not get through to the service.
func WriteError(w http.ResponseWriter, r *http.Request, err error) {
	w, r, end := fromText(w, r)
	defer end()
	if connect.NewErrorWriter().Write(w, r, statusOf(err)) != nil {
		front.WriteProblem(w, r, err)
	}
}

// codes are the statuses of kinds of errors.
var codes = map[errs.Kind]connect.Code{
	errs.Invalid:         connect.CodeInvalidArgument,
	errs.Unauthenticated: connect.CodeUnauthenticated,
	errs.Forbidden:       connect.CodePermissionDenied,
	errs.NotFound:        connect.CodeNotFound,
	errs.Conflict:        connect.CodeAlreadyExists,
	errs.WrongState:      connect.CodeFailedPrecondition,
	errs.SharedFiles:     connect.CodeFailedPrecondition,
	errs.InUse:           connect.CodeFailedPrecondition,
	errs.TaskInProgress:  connect.CodeFailedPrecondition,
	errs.TooLarge:        connect.CodeResourceExhausted, // as gRPC itself says it
	errs.Exhausted:       connect.CodeResourceExhausted,
	errs.LowMemory:       connect.CodeResourceExhausted,
	errs.OverQuota:       connect.CodeResourceExhausted,
	errs.Unavailable:     connect.CodeUnavailable,
	errs.Unready:         connect.CodeUnavailable,
	errs.Timeout:         connect.CodeDeadlineExceeded,
	errs.Canceled:        connect.CodeCanceled,
	errs.Unsupported:     connect.CodeUnimplemented,
	errs.Internal:        connect.CodeInternal,
}

func statusOf(err error) *connect.Error {
	info := front.Public(err)
	code, ok := codes[info.Kind]
	if !ok {
		code = connect.CodeInternal
	}
	return connect.NewError(code, errors.New(sentence(info)))
}

// sentence is all that an error may show, in one line.
func sentence(info errs.Info) string {
	if info.Hint == "" || info.Kind == errs.Unauthenticated {
		return info.Message
	}
	return info.Message + ": " + info.Hint
}

// statuses turns core's errors into statuses, in the one place where all calls
// pass.
type statuses struct{ d *Door }

func (s statuses) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		res, err := next(ctx, req)
		return res, s.d.status(ctx, err)
	}
}

func (s statuses) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return s.d.status(ctx, next(ctx, conn))
	}
}

func (statuses) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (d *Door) status(ctx context.Context, err error) error {
	var status *connect.Error
	if err == nil || errors.As(err, &status) {
		return err
	}
	if errs.KindOf(err) == errs.Internal {
		d.log.ErrorContext(ctx, "a call failed", "request_id", front.RequestID(ctx), "err", err)
	}
	return statusOf(err)
}
