package rpc

import (
	"context"
	"errors"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"

	"github.com/cubbyhq/cubby/api/gen/sandbox/v1/sandboxv1connect"
)

// health answers gRPC's health service until life ends.
type health struct{ life context.Context } //nolint:containedctx // as in Config

func (h health) Check(_ context.Context, req *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	if req.Service != "" && req.Service != sandboxv1connect.SandboxServiceName {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such service"))
	}
	status := grpchealth.StatusServing
	if h.life.Err() != nil {
		status = grpchealth.StatusNotServing
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
		return next(ctx, endingConn{conn, e.life})
	}
}

type endingConn struct {
	connect.StreamingHandlerConn
	life context.Context //nolint:containedctx // as in Config
}

func (c endingConn) Send(message any) error {
	err := c.StreamingHandlerConn.Send(message)
	if err == nil && c.life.Err() != nil {
		return connect.NewError(connect.CodeUnavailable, errors.New("the daemon is stopping"))
	}
	return err
}
