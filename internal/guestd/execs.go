package guestd

import (
	"context"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guestd/kernels"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
)

// Bounds of what the agent keeps for the host.
const (
	maxExecs  = 1024
	maxExecID = 64
)

// startAlone is how long the news of a start waits for output or the exit to
// go with: each message that goes alone wakes the host.
const startAlone = 5 * time.Millisecond

// exec is what the host calls so: a command, or a cell of a kernel.
type exec struct {
	*proc.Exec
	cell    *kernels.Cell       // nil: a command
	service *guestv1.ServiceRun // nil: no run of a service
	session string              // whose command it is; "": none's
}

// started returns what runs, or ran, and since when; pid is 0 when nothing ever
// did. It has begun.
func (e exec) started() (pid int, at time.Time) {
	pid, at = e.Started()
	if e.cell != nil {
		pid = e.cell.PID()
	}
	return pid, at
}

// Exec implements the guest service.
func (s *Server) Exec(ctx context.Context, req *connect.Request[guestv1.ExecRequest], to *connect.ServerStream[guestv1.ExecResponse]) error {
	e, err := s.startOrAttach(req.Msg.GetExecUid(), req.Msg.GetStart())
	if err != nil {
		return err
	}
	s.requests.owe(ctx)
	next := req.Msg.GetAfter()
	out := e.Output()
	if err := out.Ack(next); err != nil {
		return err
	}
	more, stop := out.Subscribe()
	defer stop()
	flush := flusherOf(ctx)
	if e.cell != nil {
		// It may be long until its turn comes; so the host knows that it waits.
		if err := to.Send(&guestv1.ExecResponse{}); err != nil {
			return err
		}
		flush()
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-e.Begun():
	}
	var news <-chan time.Time // when the start goes out alone
	if pid, at := e.started(); pid != 0 {
		t := time.NewTimer(startAlone)
		defer t.Stop()
		news = t.C
		if err := to.Send(&guestv1.ExecResponse{Event: &guestv1.ExecResponse_Started{
			Started: &guestv1.ExecStarted{Pid: int64(pid), At: timestamppb.New(at)},
		}}); err != nil {
			return err
		}
	}
	for {
		segs, done, err := out.After(next)
		if err != nil {
			return err
		}
		for _, seg := range segs {
			if err := to.Send(outputMessage(seg)); err != nil {
				return err
			}
			next = seg.End()
		}
		if done {
			return to.Send(&guestv1.ExecResponse{Event: &guestv1.ExecResponse_Exit{Exit: e.Exit()}})
		}
		if len(segs) > 0 {
			flush()
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-more:
		case <-news:
			flush()
		}
	}
}

func outputMessage(seg proc.Segment) *guestv1.ExecResponse {
	name := guestv1.Stream_STREAM_STDOUT
	switch seg.Stream {
	case proc.Stderr:
		name = guestv1.Stream_STREAM_STDERR
	case proc.Rich:
		name = guestv1.Stream_STREAM_RICH
	}
	return &guestv1.ExecResponse{Event: &guestv1.ExecResponse_Output{Output: &guestv1.ExecOutput{
		Offset: seg.Offset, Stream: name, Data: seg.Data, At: timestamppb.New(seg.At),
	}}}
}

// startOrAttach returns the exec with this uid. One that is not known is
// started, and goes on whatever becomes of the request.
func (s *Server) startOrAttach(uid string, start *guestv1.ExecStart) (exec, error) {
	if uid == "" || len(uid) > maxExecID {
		return exec{}, errs.E(errs.Invalid, "malformed exec uid")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.execs[uid]; ok {
		return e, nil
	}
	switch {
	case start == nil:
		return exec{}, errs.E(errs.NotFound, "no such exec")
	case s.ending:
		return exec{}, errs.E(errs.WrongState, "the sandbox is shutting down")
	case len(s.execs) >= maxExecs:
		return exec{}, errs.E(errs.Exhausted, "%d commands are running or not collected", maxExecs)
	}
	e := exec{Exec: s.procs.NewExec(uid), service: start.GetService(), session: start.GetSession()}
	if start.GetCell() != nil {
		e.cell = s.kernels.Enqueue(e.Exec, start)
	} else {
		s.procs.Run(e.Exec, start)
	}
	s.execs[uid] = e
	return e, nil
}

func (s *Server) exec(uid string) (exec, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.execs[uid]
	if !ok {
		return exec{}, errs.E(errs.NotFound, "no such exec")
	}
	return e, nil
}

// AckExec implements the guest service.
func (s *Server) AckExec(_ context.Context, req *connect.Request[guestv1.AckExecRequest]) (*connect.Response[guestv1.AckExecResponse], error) {
	e, err := s.exec(req.Msg.GetExecUid())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&guestv1.AckExecResponse{}), e.Output().Ack(req.Msg.GetOffset())
}

// ReleaseExec implements the guest service. Execs that are not known are
// skipped, those that run are refused, and the others are forgotten.
func (s *Server) ReleaseExec(_ context.Context, req *connect.Request[guestv1.ReleaseExecRequest]) (*connect.Response[guestv1.ReleaseExecResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var refused error
	for _, uid := range req.Msg.GetExecUids() {
		e, ok := s.execs[uid]
		switch {
		case !ok:
		case e.Exit() == nil:
			refused = errs.E(errs.WrongState, "the exec is still running")
		default:
			e.Output().Drop()
			delete(s.execs, uid)
		}
	}
	return connect.NewResponse(&guestv1.ReleaseExecResponse{}), refused
}

// ListExecs implements the guest service.
func (s *Server) ListExecs(context.Context, *connect.Request[guestv1.ListExecsRequest]) (*connect.Response[guestv1.ListExecsResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	res := &guestv1.ListExecsResponse{}
	for uid, e := range s.execs {
		acked, written := e.Output().Offsets()
		res.Execs = append(res.Execs, &guestv1.ListExecsResponse_Item{
			ExecUid: uid, Finished: e.Exit() != nil, Acked: acked, Written: written, Service: e.service,
		})
	}
	return connect.NewResponse(res), nil
}

// SignalExec implements the guest service. An exec that has ended is not found
// when nothing lives in its tree.
func (s *Server) SignalExec(ctx context.Context, req *connect.Request[guestv1.SignalExecRequest]) (*connect.Response[guestv1.SignalExecResponse], error) {
	sig := syscall.Signal(req.Msg.GetSignal())
	if sig < 1 || sig > 64 {
		return nil, errs.E(errs.Invalid, "no such signal: %d", int32(sig))
	}
	uid, reason, all := req.Msg.GetExecUid(), req.Msg.GetReason(), req.Msg.GetTree()
	e, err := s.exec(uid)
	if err != nil && all {
		// It may have been released while what it had started lives on.
		if left := s.procs.Left(uid); left != nil {
			e, err = exec{Exec: left}, nil
		}
	}
	if err != nil {
		return nil, err
	}
	res := connect.NewResponse(&guestv1.SignalExecResponse{})
	if e.cell != nil {
		return res, e.cell.Signal(ctx, sig, reason, all)
	}
	patience := req.Msg.GetPatience()
	if patience == nil || !all || sig != syscall.SIGKILL {
		return res, e.Signal(ctx, sig, reason, all)
	}
	survivors, err := s.procs.Kill(ctx, e.Exec, reason, patience.AsDuration())
	res.Msg.Outlived, res.Msg.Spare = survivors.Outlived, survivors.Spare
	return res, err
}

// Unkilled implements the guest service.
func (s *Server) Unkilled(_ context.Context, req *connect.Request[guestv1.UnkilledRequest]) (*connect.Response[guestv1.UnkilledResponse], error) {
	survivors := s.procs.Unkilled(req.Msg.GetPatience().AsDuration())
	return connect.NewResponse(&guestv1.UnkilledResponse{Outlived: survivors.Outlived, Spare: survivors.Spare}), nil
}

// WriteStdin implements the guest service.
func (s *Server) WriteStdin(ctx context.Context, req *connect.Request[guestv1.WriteStdinRequest]) (*connect.Response[guestv1.WriteStdinResponse], error) {
	e, err := s.exec(req.Msg.GetExecUid())
	if err != nil {
		return nil, err
	}
	if e.cell != nil {
		at, err := e.cell.WriteStdin(req.Msg.GetOffset(), req.Msg.GetData(), req.Msg.GetEof())
		return connect.NewResponse(&guestv1.WriteStdinResponse{Offset: at}), err
	}
	at, err := e.WriteStdin(ctx, req.Msg.GetOffset(), req.Msg.GetData(), req.Msg.GetEof())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&guestv1.WriteStdinResponse{Offset: at}), nil
}

// ResizeExec implements the guest service.
func (s *Server) ResizeExec(ctx context.Context, req *connect.Request[guestv1.ResizeExecRequest]) (*connect.Response[guestv1.ResizeExecResponse], error) {
	e, err := s.exec(req.Msg.GetExecUid())
	if err != nil {
		return nil, err
	}
	if e.cell != nil {
		return nil, errs.E(errs.WrongState, "a cell has no terminal")
	}
	if err := e.Resize(ctx, req.Msg.GetSize()); err != nil {
		return nil, err
	}
	return connect.NewResponse(&guestv1.ResizeExecResponse{}), nil
}
