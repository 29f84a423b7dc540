package guestd

import (
	"context"
	"errors"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
)

// Bounds of what the agent keeps for the host.
const (
	maxExecs  = 1024
	maxExecID = 64
)

// startAlone is how long the news of a start waits for output or the exit to
// go with: each message that goes alone wakes the host.
const startAlone = 5 * time.Millisecond

// Exec implements the guest service.
func (s *Server) Exec(ctx context.Context, req *connect.Request[guestv1.ExecRequest], to *connect.ServerStream[guestv1.ExecResponse]) error {
	e, err := s.startOrAttach(req.Msg.GetExecUid(), req.Msg.GetStart())
	if err != nil {
		return err
	}
	next := req.Msg.GetAfter()
	if err := e.out.ack(next); err != nil {
		return err
	}
	more, stop := e.out.subscribe()
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
	case <-e.begun:
	}
	var news <-chan time.Time // when the start goes out alone
	if pid, at := e.process(); pid != 0 {
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
		segs, done, err := e.out.after(next)
		if err != nil {
			return err
		}
		for _, seg := range segs {
			if err := to.Send(outputMessage(seg)); err != nil {
				return err
			}
			next = seg.end()
		}
		if done {
			return to.Send(&guestv1.ExecResponse{Event: &guestv1.ExecResponse_Exit{Exit: e.finished()}})
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

func outputMessage(seg segment) *guestv1.ExecResponse {
	name := guestv1.Stream_STREAM_STDOUT
	switch seg.stream {
	case stderr:
		name = guestv1.Stream_STREAM_STDERR
	case rich:
		name = guestv1.Stream_STREAM_RICH
	}
	return &guestv1.ExecResponse{Event: &guestv1.ExecResponse_Output{Output: &guestv1.ExecOutput{
		Offset: seg.offset, Stream: name, Data: seg.data, At: timestamppb.New(seg.at),
	}}}
}

// startOrAttach returns the exec with this uid. One that is not known is
// started, and goes on whatever becomes of the request.
func (s *Server) startOrAttach(uid string, start *guestv1.ExecStart) (*exec, error) {
	if uid == "" || len(uid) > maxExecID {
		return nil, errs.E(errs.Invalid, "malformed exec uid")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.execs[uid]; ok {
		return e, nil
	}
	switch {
	case start == nil:
		return nil, errs.E(errs.NotFound, "no such exec")
	case s.ending:
		return nil, errs.E(errs.WrongState, "the sandbox is shutting down")
	case len(s.execs) >= maxExecs:
		return nil, errs.E(errs.Exhausted, "%d commands are running or not collected", maxExecs)
	}
	e := newExec(uid, s.budget)
	s.execs[uid] = e
	if start.GetCell() != nil {
		s.enqueue(e, start)
		return e, nil
	}
	s.running.Go(func() { s.run(e, start) })
	return e, nil
}

func (s *Server) exec(uid string) (*exec, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.execs[uid]
	if !ok {
		return nil, errs.E(errs.NotFound, "no such exec")
	}
	return e, nil
}

// leaver returns an exec that was released while what it had started lived on.
func (s *Server) leaver(uid string) (*exec, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.left {
		if e.uid == uid {
			return e, nil
		}
	}
	return nil, errs.E(errs.NotFound, "no such exec")
}

// AckExec implements the guest service.
func (s *Server) AckExec(_ context.Context, req *connect.Request[guestv1.AckExecRequest]) (*connect.Response[guestv1.AckExecResponse], error) {
	e, err := s.exec(req.Msg.GetExecUid())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&guestv1.AckExecResponse{}), e.out.ack(req.Msg.GetOffset())
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
		case e.finished() == nil:
			refused = errs.E(errs.WrongState, "the exec is still running")
		default:
			e.out.drop()
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
		acked, written := e.out.offsets()
		res.Execs = append(res.Execs, &guestv1.ListExecsResponse_Item{
			ExecUid: uid, Finished: e.finished() != nil, Acked: acked, Written: written,
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
	e, err := s.exec(req.Msg.GetExecUid())
	if err != nil && req.Msg.GetTree() {
		e, err = s.leaver(req.Msg.GetExecUid())
	}
	if err != nil {
		return nil, err
	}
	if e.cell != nil {
		return connect.NewResponse(&guestv1.SignalExecResponse{}), e.cell.signal(ctx, sig, req.Msg.GetReason(), req.Msg.GetTree())
	}
	t, _, err := e.running(ctx)
	if err != nil {
		return nil, err
	}
	if reason := req.Msg.GetReason(); reason != guestv1.ExitReason_EXIT_REASON_UNSPECIFIED {
		e.setBlame(blame{reason: reason, signal: sig})
	}
	if patience := req.Msg.GetPatience(); patience != nil && req.Msg.GetTree() && sig == syscall.SIGKILL {
		return s.killFor(ctx, e, t, patience.AsDuration())
	}
	return connect.NewResponse(&guestv1.SignalExecResponse{}), e.signal(ctx, t, sig, req.Msg.GetTree())
}

// killFor kills a tree, and asks the host to do so when that takes longer than
// patience: what starves the agent does not starve the host.
func (s *Server) killFor(ctx context.Context, e *exec, t tree, patience time.Duration) (*connect.Response[guestv1.SignalExecResponse], error) {
	held, shared := t.(*supervised)
	if !shared {
		return connect.NewResponse(&guestv1.SignalExecResponse{}), e.signal(ctx, t, syscall.SIGKILL, true)
	}
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	killed := make(chan error, 1)
	s.background.Go(func() { killed <- e.signal(within, t, syscall.SIGKILL, true) })
	select {
	case err := <-killed:
		if within.Err() == nil || ctx.Err() != nil {
			return connect.NewResponse(&guestv1.SignalExecResponse{}), err
		}
	case <-within.Done():
		if ctx.Err() != nil {
			return nil, errs.E(errs.Timeout, "some processes are not gone yet").Because(context.Cause(ctx))
		}
	}
	if !t.alive() {
		return connect.NewResponse(&guestv1.SignalExecResponse{}), nil
	}
	spare, outlived := held.by.pool.spare(held)
	return connect.NewResponse(&guestv1.SignalExecResponse{Outlived: outlived, Spare: spare}), nil
}

// Unkilled implements the guest service.
func (s *Server) Unkilled(_ context.Context, req *connect.Request[guestv1.UnkilledRequest]) (*connect.Response[guestv1.UnkilledResponse], error) {
	pool, shared := s.launcher.(*supervisors)
	if !shared {
		return connect.NewResponse(&guestv1.UnkilledResponse{}), nil
	}
	trees, spare := pool.unkilled(req.Msg.GetPatience().AsDuration())
	return connect.NewResponse(&guestv1.UnkilledResponse{Outlived: len(trees) > 0, Spare: spare}), nil
}

func (e *exec) signal(ctx context.Context, t tree, sig syscall.Signal, all bool) error {
	switch {
	case all && e.finished() != nil && !t.alive():
		return errs.E(errs.NotFound, "nothing of the command is left")
	case all && sig == syscall.SIGKILL:
		if err := t.kill(ctx); err != nil {
			return errs.E(errs.Timeout, "some processes are not gone yet").Because(err)
		}
		return nil
	case all:
		for _, pid := range t.members() {
			if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
				return classify(err, "signal")
			}
		}
		return nil
	case e.finished() != nil:
		return errs.E(errs.WrongState, "the command has ended")
	}
	if err := syscall.Kill(-t.pid(), sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return classify(err, "signal")
	}
	return nil
}

// WriteStdin implements the guest service.
func (s *Server) WriteStdin(ctx context.Context, req *connect.Request[guestv1.WriteStdinRequest]) (*connect.Response[guestv1.WriteStdinResponse], error) {
	e, err := s.exec(req.Msg.GetExecUid())
	if err != nil {
		return nil, err
	}
	if e.cell != nil {
		at, err := e.cell.write(req.Msg.GetOffset(), req.Msg.GetData(), req.Msg.GetEof())
		return connect.NewResponse(&guestv1.WriteStdinResponse{Offset: at}), err
	}
	_, io, err := e.running(ctx)
	if err != nil {
		return nil, err
	}
	if io.in == nil {
		return nil, errs.E(errs.WrongState, "the command was started without standard input")
	}
	at, err := io.in.write(ctx, req.Msg.GetOffset(), req.Msg.GetData(), req.Msg.GetEof())
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
	_, io, err := e.running(ctx)
	if err != nil {
		return nil, err
	}
	if err := io.resize(req.Msg.GetSize()); err != nil {
		return nil, classify(err, "terminal")
	}
	return connect.NewResponse(&guestv1.ResizeExecResponse{}), nil
}
