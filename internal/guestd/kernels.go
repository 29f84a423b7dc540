package guestd

import (
	"context"

	"connectrpc.com/connect"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
)

// CreateKernel implements the guest service.
func (s *Server) CreateKernel(ctx context.Context, req *connect.Request[guestv1.CreateKernelRequest]) (*connect.Response[guestv1.CreateKernelResponse], error) {
	k, err := s.kernels.Create(ctx, req.Msg.GetKernel())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&guestv1.CreateKernelResponse{Kernel: k}), nil
}

// PrepareKernel implements the guest service.
func (s *Server) PrepareKernel(ctx context.Context, req *connect.Request[guestv1.PrepareKernelRequest]) (*connect.Response[guestv1.PrepareKernelResponse], error) {
	if err := s.kernels.Prepare(ctx, req.Msg.GetKernel(), req.Msg.GetModules()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&guestv1.PrepareKernelResponse{}), nil
}

// ListKernels implements the guest service.
func (s *Server) ListKernels(context.Context, *connect.Request[guestv1.ListKernelsRequest]) (*connect.Response[guestv1.ListKernelsResponse], error) {
	live, kinds, err := s.kernels.List()
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&guestv1.ListKernelsResponse{Kernels: live, Kinds: kinds}), nil
}

// InterruptKernel implements the guest service.
func (s *Server) InterruptKernel(_ context.Context, req *connect.Request[guestv1.InterruptKernelRequest]) (*connect.Response[guestv1.InterruptKernelResponse], error) {
	k, err := s.kernels.Interrupt(req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&guestv1.InterruptKernelResponse{Kernel: k}), nil
}

// RestartKernel implements the guest service.
func (s *Server) RestartKernel(ctx context.Context, req *connect.Request[guestv1.RestartKernelRequest]) (*connect.Response[guestv1.RestartKernelResponse], error) {
	k, err := s.kernels.Restart(ctx, req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&guestv1.RestartKernelResponse{Kernel: k}), nil
}

// DeleteKernel implements the guest service.
func (s *Server) DeleteKernel(ctx context.Context, req *connect.Request[guestv1.DeleteKernelRequest]) (*connect.Response[guestv1.DeleteKernelResponse], error) {
	if err := s.kernels.Delete(ctx, req.Msg.GetName()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&guestv1.DeleteKernelResponse{}), nil
}

// AskKernel implements the guest service.
func (s *Server) AskKernel(ctx context.Context, req *connect.Request[guestv1.AskKernelRequest]) (*connect.Response[guestv1.AskKernelResponse], error) {
	answer, err := s.kernels.Ask(ctx, req.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(answer), nil
}
