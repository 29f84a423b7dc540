package guestd

import (
	"context"
	"errors"
	"slices"
	"strings"
	"unicode"

	"connectrpc.com/connect"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
)

// Bounds of what a sandbox may hold.
const (
	maxKernels    = 64
	maxKernelName = 64
)

// addKernel makes a kernel that begins when it has something to do. s.mu is
// held.
func (s *Server) addKernel(name string, asked *guestv1.KernelSpec) (*liveKernel, error) {
	switch {
	case name == "" || len(name) > maxKernelName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return nil, errs.E(errs.Invalid, "malformed name of a kernel: %.64q", name)
	case asked.GetLanguage() == "":
		return nil, errs.E(errs.NotFound, "there is no kernel %q", name)
	case s.ending:
		return nil, errs.E(errs.WrongState, "the sandbox is shutting down")
	case s.kernels[name] != nil:
		return nil, errs.E(errs.Conflict, "there is a kernel %q already", name)
	case len(s.kernels) >= maxKernels:
		return nil, errs.E(errs.Exhausted, "the sandbox has %d kernels already", maxKernels)
	}
	k := newLiveKernel(s, name, asked)
	s.kernels[name] = k
	s.running.Go(k.run)
	return k, nil
}

func (s *Server) kernel(name string) (*liveKernel, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.kernels[name]; k != nil {
		return k, nil
	}
	return nil, errs.E(errs.NotFound, "there is no kernel %.64q", name)
}

// endKernels orders the end of all kernels.
func (s *Server) endKernels(b blame) {
	s.mu.Lock()
	var all []*liveKernel
	for _, k := range s.kernels {
		all = append(all, k)
	}
	s.mu.Unlock()
	for _, k := range all {
		k.end(b)
	}
}

// CreateKernel implements the guest service.
func (s *Server) CreateKernel(ctx context.Context, req *connect.Request[guestv1.CreateKernelRequest]) (*connect.Response[guestv1.CreateKernelResponse], error) {
	asked := req.Msg.GetKernel()
	if asked.GetLanguage() == "" {
		return nil, errs.E(errs.Invalid, "a kernel needs a language")
	}
	name := asked.GetName()
	if name == "" {
		kind, err := s.kindFor(asked)
		if err != nil {
			return nil, err
		}
		name = canonicalLanguage(kind.language)
	}
	s.mu.Lock()
	k, err := s.addKernel(name, asked)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := k.again(ctx); err != nil {
		return nil, startError(err)
	}
	return connect.NewResponse(&guestv1.CreateKernelResponse{Kernel: k.message()}), nil
}

// kindFor finds what a request names.
func (s *Server) kindFor(asked *guestv1.KernelSpec) (kernelKind, error) {
	a, err := s.accounts.lookup(asked.GetUser())
	if err != nil {
		return kernelKind{}, err
	}
	env := environment(s.cfg.Boot.GetEnv(), &guestv1.ExecStart{Env: asked.GetEnv()}, a)
	return findKind(s.kernelKinds(a, env), asked.GetLanguage())
}

// ListKernels implements the guest service.
func (s *Server) ListKernels(context.Context, *connect.Request[guestv1.ListKernelsRequest]) (*connect.Response[guestv1.ListKernelsResponse], error) {
	s.mu.Lock()
	var all []*liveKernel
	for _, k := range s.kernels {
		all = append(all, k)
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b *liveKernel) int { return strings.Compare(a.name, b.name) })
	res := &guestv1.ListKernelsResponse{}
	for _, k := range all {
		res.Kernels = append(res.Kernels, k.message())
	}
	a, err := s.accounts.lookup("")
	if err != nil {
		return nil, err
	}
	for _, kind := range s.kernelKinds(a, environment(s.cfg.Boot.GetEnv(), &guestv1.ExecStart{}, a)) {
		res.Kinds = append(res.Kinds, kind.message())
	}
	return connect.NewResponse(res), nil
}

// InterruptKernel implements the guest service.
func (s *Server) InterruptKernel(_ context.Context, req *connect.Request[guestv1.InterruptKernelRequest]) (*connect.Response[guestv1.InterruptKernelResponse], error) {
	k, err := s.kernel(req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	k.interrupt()
	return connect.NewResponse(&guestv1.InterruptKernelResponse{Kernel: k.message()}), nil
}

// RestartKernel implements the guest service.
func (s *Server) RestartKernel(ctx context.Context, req *connect.Request[guestv1.RestartKernelRequest]) (*connect.Response[guestv1.RestartKernelResponse], error) {
	k, err := s.kernel(req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	if err := k.again(ctx); err != nil {
		return nil, startError(err)
	}
	return connect.NewResponse(&guestv1.RestartKernelResponse{Kernel: k.message()}), nil
}

// DeleteKernel implements the guest service.
func (s *Server) DeleteKernel(ctx context.Context, req *connect.Request[guestv1.DeleteKernelRequest]) (*connect.Response[guestv1.DeleteKernelResponse], error) {
	k, err := s.kernel(req.Msg.GetName())
	if err != nil {
		return nil, err
	}
	k.end(blame{reason: guestv1.ExitReason_EXIT_REASON_KILLED, text: "the kernel was deleted"})
	select {
	case <-k.gone:
		return connect.NewResponse(&guestv1.DeleteKernelResponse{}), nil
	case <-ctx.Done():
		return nil, errs.E(errs.Timeout, "the kernel is not gone yet").Because(context.Cause(ctx))
	}
}

// startError classifies why a kernel was not started.
func startError(err error) error {
	var ns *notStarted
	if errors.As(err, &ns) {
		return errs.E(errs.Unavailable, "%s", ns.message)
	}
	return err
}
