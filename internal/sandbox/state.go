package sandbox

import "slices"

// State is where a sandbox stands in its life.
type State string

// The states. Creating is never a resting place: a create ends in Running or
// Failed, also across a crash of the daemon.
const (
	Creating  State = "creating"
	Running   State = "running"
	Sleeping  State = "sleeping" // memory on disk, no process
	Stopped   State = "stopped"  // files only
	Failed    State = "failed"   // a create or start that was undone; Reason says why
	Destroyed State = "destroyed"
)

// moves is the state machine: every change of state is looked up here and
// nowhere else.
var moves = map[State][]State{
	Creating:  {Running, Failed, Destroyed},
	Running:   {Sleeping, Stopped, Failed, Destroyed},
	Sleeping:  {Running, Stopped, Failed, Destroyed},
	Stopped:   {Running, Sleeping, Failed, Destroyed}, // asleep after a stop that took nothing away
	Failed:    {Destroyed},
	Destroyed: {},
}

// States lists every state in the order of a life.
func States() []State {
	return []State{Creating, Running, Sleeping, Stopped, Failed, Destroyed}
}

// CanBecome reports whether the move s → to exists.
func (s State) CanBecome(to State) bool { return slices.Contains(moves[s], to) }

// Live reports whether a sandbox in this state holds its id: a second create
// with the same id is refused. A failed create was undone, so it does not.
func (s State) Live() bool { return s != Failed && s != Destroyed }
