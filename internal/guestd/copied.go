package guestd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guestd/kernels"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// maxNamed is how many programs or sessions a warning names.
const maxNamed = 20

// leaveParent ends what the sandbox has from the one whose memory it began with:
// its execs, its boot id, and random numbers that both would draw. It returns warnings of what
// was ended, and of what cannot be.
func (s *Server) leaveParent(ctx context.Context, secret string) []string {
	warnings := s.endSessions(ctx, s.disown(secret))
	s.drawBootID()
	programs := s.programs()
	warnings = append(warnings, s.kernels.Reseed(ctx)...)
	if programs != "" {
		warnings = append(warnings, "these programs were running and share the state of their random generators with the sandbox that this one was copied from, "+
			"and with its other copies: "+programs+"; what they do with TLS and keys is not safe until they are started again")
	}
	return warnings
}

// disown forgets all execs but those of services. They run on, and nothing that
// they print is kept. Runs of services get uids of this sandbox's own. It returns
// the commands of sessions, which are not to run on.
func (s *Server) disown(secret string) (sessions []exec) {
	s.mu.Lock()
	execs := maps.Clone(s.execs)
	clear(s.execs)
	s.procs.Disown()
	var cells []*kernels.Cell
	for uid, e := range execs {
		if own := string(sandbox.DerivedUID(secret, sandbox.UID(uid))); e.service != nil && s.procs.Rename(e.Exec, own) {
			s.execs[own] = e
			continue
		}
		e.Output().Discard()
		switch {
		case e.cell != nil:
			cells = append(cells, e.cell)
		case e.session != "":
			sessions = append(sessions, e)
		}
	}
	s.mu.Unlock()
	s.kernels.Disown(cells)
	return sessions
}

// endTime bounds the end of what is not to run on in a copy.
const endTime = 10 * time.Second

// endSessions ends commands of sessions with all that they started, and returns a
// warning of those that ran. The commands of a session run one after another, and the
// next could not wait for one that is nobody's: both would change the session's state.
func (s *Server) endSessions(ctx context.Context, commands []exec) (warnings []string) {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	var mu sync.Mutex
	var ended, run []string
	var all sync.WaitGroup
	for _, e := range commands {
		all.Go(func() {
			if e.Exit() != nil {
				return // what it left runs on
			}
			err := e.Signal(ctx, syscall.SIGKILL, guestv1.ExitReason_EXIT_REASON_KILLED, true)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				ended = append(ended, e.session)
			case !errors.Is(err, errs.NotFound) && !errors.Is(err, errs.WrongState):
				run = append(run, e.session)
			}
		})
	}
	all.Wait()
	if len(ended) > 0 {
		warnings = append(warnings, "these sessions were running a command, which was ended in the copy; they are as they were before it: "+named(ended))
	}
	if len(run) > 0 {
		warnings = append(warnings, "these sessions were running a command, which could not be ended in the copy and may change their state: "+named(run))
	}
	return warnings
}

// named lists some names.
func named(names []string) string {
	slices.Sort(names)
	if more := len(names) - maxNamed; more > 0 {
		names = append(names[:maxNamed], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// programs names what runs beside the agent and the kernels; "": nothing does.
func (s *Server) programs() string {
	own := s.kernels.PIDs()
	var names []string
	all := slices.DeleteFunc(proc.Programs(), func(p proc.Running) bool { return slices.Contains(own, p.PID) })
	for _, p := range all[:min(len(all), maxNamed)] {
		names = append(names, fmt.Sprintf("%s (pid %d)", strings.ToValidUTF8(p.Name, "\uFFFD"), p.PID))
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
