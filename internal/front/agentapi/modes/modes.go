// Package modes shows a run of the agent in the stream modes of LangGraph's
// platform: out of the events of its journal, and the states that these name, it
// makes the events that clients read. The same journal gives the same events with the
// same numbers to everybody, so that a client which comes back goes on where it was.
// It reads no journal and no store; who does hands it what is there.
package modes

import (
	"slices"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Mode is a view of a run.
type Mode string

// The modes that clients ask for.
const (
	Values        Mode = "values"         // the whole state after each step
	Updates       Mode = "updates"        // what each node added
	Messages      Mode = "messages"       // messages as they grow, each time as far as they are
	MessagesTuple Mode = "messages-tuple" // the pieces of messages
	Custom        Mode = "custom"         // notices, such as what a tool prints
	Events        Mode = "events"         // LangChain's callbacks, version 2
	Debug         Mode = "debug"          // tasks and checkpoints, with all there is
	Tasks         Mode = "tasks"
	Checkpoints   Mode = "checkpoints"
	Tools         Mode = "tools" // what becomes of each call of a tool
)

var all = []Mode{Values, Updates, Messages, MessagesTuple, Custom, Events, Debug, Tasks, Checkpoints, Tools}

// Names are the names of all modes.
func Names() []string {
	names := make([]string, len(all))
	for i, m := range all {
		names[i] = string(m)
	}
	return names
}

// Set is the modes of one stream.
type Set map[Mode]bool

// Parse reads the names of modes; none is values. Invalid when one is none.
func Parse(names []string) (Set, error) {
	s := Set{}
	for _, name := range names {
		if !slices.Contains(all, Mode(name)) {
			return nil, errs.E(errs.Invalid, "stream_mode: no mode %.40q", name).Hint("modes are %s", strings.Join(Names(), ", "))
		}
		s[Mode(name)] = true
	}
	if len(s) == 0 {
		s[Values] = true
	}
	return s, nil
}
