package guestd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cubbyhq/cubby/internal/guestd/kernels"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// maxNamed is how many programs a warning names.
const maxNamed = 20

// leaveParent ends what the sandbox has from the one whose memory it began with:
// its execs, its boot id, and random numbers that both would draw. It returns warnings of what
// cannot be ended.
func (s *Server) leaveParent(ctx context.Context, secret string) []string {
	s.disown(secret)
	s.drawBootID()
	programs := s.programs()
	warnings := s.kernels.Reseed(ctx)
	if programs != "" {
		warnings = append(warnings, "these programs were running and share the state of their random generators with the sandbox that this one was copied from, "+
			"and with its other copies: "+programs+"; what they do with TLS and keys is not safe until they are started again")
	}
	return warnings
}

// disown forgets all execs but those of services. They run on, and nothing that
// they print is kept. Runs of services get uids of this sandbox's own.
func (s *Server) disown(secret string) {
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
		if e.cell != nil {
			cells = append(cells, e.cell)
		}
	}
	s.mu.Unlock()
	s.kernels.Disown(cells)
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
