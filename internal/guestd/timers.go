package guestd

import (
	"context"

	"connectrpc.com/connect"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
)

// PauseTimers implements the guest service. The host asks it when it is about to
// keep this memory, and will be there again at once, as it looks from here.
func (s *Server) PauseTimers(context.Context, *connect.Request[guestv1.PauseTimersRequest]) (*connect.Response[guestv1.PauseTimersResponse], error) {
	s.uptime.Pause()
	s.up.hostLeaves()
	return connect.NewResponse(&guestv1.PauseTimersResponse{}), nil
}

// ResumeTimers implements the guest service.
func (s *Server) ResumeTimers(context.Context, *connect.Request[guestv1.ResumeTimersRequest]) (*connect.Response[guestv1.ResumeTimersResponse], error) {
	s.uptime.Resume()
	s.up.hostIsBack()
	return connect.NewResponse(&guestv1.ResumeTimersResponse{}), nil
}
