package rpc

import (
	"context"
	"errors"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"google.golang.org/protobuf/proto"

	"github.com/cubbyhq/cubby/api/gen/sandbox/v1/sandboxv1connect"
)

// health answers gRPC's health service until life ends.
type health struct{ life context.Context } //nolint:containedctx // as in Config

// statusServiceUnknown is what a watch hears of a service that is not here, in
// the place of an error: it may come, so the stream stays open.
const statusServiceUnknown = grpchealth.Status(3)

// watching marks the context of a watch: it asks with the same Check.
type watching struct{}

func (h health) Check(ctx context.Context, req *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	status := grpchealth.StatusServing
	if h.life.Err() != nil {
		status = grpchealth.StatusNotServing
	}
	if req.Service != "" && req.Service != sandboxv1connect.SandboxServiceName {
		if ctx.Value(watching{}) == nil {
			return nil, connect.NewError(connect.CodeNotFound, errors.New("no such service"))
		}
		if h.life.Err() == nil { // otherwise a change, which ends the stream
			status = statusServiceUnknown
		}
	}
	return &grpchealth.CheckResponse{Status: status}, nil
}

// Watch implements [grpchealth.Watcher].
func (h health) Watch(_ context.Context, _ *grpchealth.CheckRequest, changed func()) (stop func(), err error) {
	forget := context.AfterFunc(h.life, changed)
	return func() { forget() }, nil
}

// endings ends a watch when it has said that the daemon stops: the daemon waits
// for its streams.
type endings struct {
	connect.Interceptor
	life context.Context //nolint:containedctx // as in Config
}

func newEndings(life context.Context) endings {
	return endings{connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc { return next }), life}
}

func (e endings) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return next(context.WithValue(ctx, watching{}, true), endingConn{conn, e.life})
	}
}

type endingConn struct {
	connect.StreamingHandlerConn
	life context.Context //nolint:containedctx // as in Config
}

func (c endingConn) Send(message any) error {
	err := c.StreamingHandlerConn.Send(message)
	// The daemon may begin to stop right after another status was sent.
	if err == nil && c.life.Err() != nil && saysNotServing(message) {
		return connect.NewError(connect.CodeUnavailable, errors.New("the daemon is stopping"))
	}
	return err
}

// saysNotServing reports whether a message is the status that a watch ends with. Its
// type is internal to grpchealth.
func saysNotServing(message any) bool {
	m, ok := message.(proto.Message)
	if !ok {
		return false
	}
	r := m.ProtoReflect()
	field := r.Descriptor().Fields().ByName("status")
	return field != nil && field.Enum() != nil && grpchealth.Status(r.Get(field).Enum()) == grpchealth.StatusNotServing
}
