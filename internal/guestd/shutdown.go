package guestd

import (
	"context"
	"os"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// maxGrace bounds what a host can ask for.
const maxGrace = 10 * time.Minute

// deliverWithin is how long the end waits for what a host should know before it:
// the exits of the execs that it follows. They come at once, unless the agent is
// starved or the host reads no more. A driver kills the agent once it has answered
// Shutdown, or a few seconds after the grace.
const deliverWithin = 2 * time.Second

// Shutdown implements the guest service. The agent ends after the answer,
// unless it is told to stay; a second Shutdown waits for the first.
func (s *Server) Shutdown(ctx context.Context, req *connect.Request[guestv1.ShutdownRequest]) (*connect.Response[guestv1.ShutdownResponse], error) {
	grace := min(max(req.Msg.GetGrace().AsDuration(), 0), maxGrace)
	// It is carried out even if the host goes away meanwhile.
	s.endAll(context.WithoutCancel(ctx), grace)
	s.sync()
	s.requests.owe(ctx)
	if !req.Msg.GetStay() {
		s.quitOnce.Do(func() { close(s.quit) })
	}
	return connect.NewResponse(&guestv1.ShutdownResponse{}), nil
}

// sync puts onto the disk what a run leaves there. In gVisor that is not the root filesystem,
// which the driver saves as a whole and in another place when this is answered: to write it
// back before would double the time of a stop.
func (s *Server) sync() {
	switch {
	case !s.cfg.Init:
	case s.cfg.Boot.GetInSandboxCgroup():
		for _, dir := range []string{sandbox.WorkspaceDir, sandbox.HomeDir} {
			// A tenant's are on one disk. One that fails is told when it is next used.
			if f, err := os.Open(dir); err == nil {
				_ = unix.Syncfs(int(f.Fd()))
				_ = f.Close()
			}
		}
	default:
		unix.Sync()
	}
}

// endAll refuses new commands and ends every process: SIGTERM, then SIGKILL for
// what is left after grace. It returns when the host, as far as it follows them, has
// got the last output and the exits of all execs.
func (s *Server) endAll(ctx context.Context, grace time.Duration) {
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	s.procs.Refuse()
	s.kernels.End(proc.Cause{Reason: guestv1.ExitReason_EXIT_REASON_SHUTDOWN, Text: proc.ShutdownText})
	s.procs.End(ctx, grace)
	s.requests.deliver(ctx, deliverWithin)
}
