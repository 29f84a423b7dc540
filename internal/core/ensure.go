package core

import (
	"context"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Ensured says what [Service.EnsureRunning] had to do.
type Ensured string

const (
	EnsuredAlready Ensured = "already" // commands could run in it, or somebody was at it
	EnsuredStarted Ensured = "started" // it rested
)

// EnsureRunning returns a sandbox when commands can run in it, and what had to be
// done for that: one that rests is started, one that is being made or started is
// waited for. All who ask at the same time wait for one start and hear how it
// ended; it goes on when they go away. Kinds as for Start.
func (s *Service) EnsureRunning(ctx context.Context, id string) (sandbox.Sandbox, Ensured, error) {
	if err := s.gate.Wait(ctx); err != nil {
		return sandbox.Sandbox{}, "", err
	}
	b, err := s.scope.Find(ctx, id)
	if err != nil {
		return b, "", err
	}
	if b.State == sandbox.Running && s.runOf(b.UID) != nil {
		return s.upToDate(b), EnsuredAlready, nil
	}
	how := EnsuredAlready
	if b.State == sandbox.Stopped || b.State == sandbox.Sleeping {
		how = EnsuredStarted
	}
	started := s.starts.DoChan(string(b.UID), func() (any, error) {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer context.AfterFunc(s.gate.Context(), cancel)()
		return s.Start(ctx, id)
	})
	select {
	case r := <-started:
		if r.Err != nil {
			return sandbox.Sandbox{}, "", r.Err
		}
		return r.Val.(sandbox.Sandbox), how, nil
	case <-ctx.Done():
		return b, "", ctx.Err()
	case <-s.gate.Ended():
		return b, "", gate.ErrShuttingDown()
	}
}
