package guestd

import (
	"context"
	"errors"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
)

// maxGrace bounds what a host can ask for.
const maxGrace = 10 * time.Minute

// Shutdown implements the guest service. The agent ends after the answer,
// unless it is told to stay; a second Shutdown waits for the first.
func (s *Server) Shutdown(ctx context.Context, req *connect.Request[guestv1.ShutdownRequest]) (*connect.Response[guestv1.ShutdownResponse], error) {
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	grace := min(max(req.Msg.GetGrace().AsDuration(), 0), maxGrace)
	// It is carried out even if the host goes away meanwhile.
	s.endAll(context.WithoutCancel(ctx), grace)
	if s.cfg.Init {
		unix.Sync()
	}
	if !req.Msg.GetStay() {
		s.quitOnce.Do(func() { close(s.quit) })
	}
	return connect.NewResponse(&guestv1.ShutdownResponse{}), nil
}

// endAll ends every process: SIGTERM, then SIGKILL for what is left after
// grace.
func (s *Server) endAll(ctx context.Context, grace time.Duration) {
	trees := s.trees()
	text := "the sandbox was stopped"
	s.endKernels(blame{reason: guestv1.ExitReason_EXIT_REASON_SHUTDOWN, text: text})
	for e, t := range trees {
		e.setBlame(blame{reason: guestv1.ExitReason_EXIT_REASON_SHUTDOWN, signal: syscall.SIGTERM, text: text})
		if grace > 0 {
			for _, pid := range t.members() {
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
		}
	}
	if grace > 0 {
		ctx, cancel := context.WithTimeout(ctx, grace)
		_ = killUntil(ctx, s.anyAlive, func() {})
		cancel()
	}
	ctx, cancel := context.WithTimeout(ctx, treeKillTimeout)
	defer cancel()
	for e, t := range trees {
		e.setBlame(blame{reason: guestv1.ExitReason_EXIT_REASON_SHUTDOWN, signal: syscall.SIGKILL, text: text})
		if err := t.kill(ctx); err != nil && !errors.Is(err, context.Canceled) {
			s.cfg.Log.Warn("processes outlive the shutdown", "err", err)
		}
	}
}

// endLate ends a command that was being started while all others were ended.
func (s *Server) endLate(e *exec, t tree) {
	s.mu.Lock()
	ending := s.ending
	s.mu.Unlock()
	if !ending {
		return // endAll will see it
	}
	ctx, cancel := context.WithTimeout(s.life, treeKillTimeout)
	defer cancel()
	e.setBlame(blame{reason: guestv1.ExitReason_EXIT_REASON_SHUTDOWN, signal: syscall.SIGKILL, text: "the sandbox was stopped"})
	if err := t.kill(ctx); err != nil && !errors.Is(err, context.Canceled) {
		s.cfg.Log.Warn("a process outlives the shutdown", "err", err)
	}
}
