package conversation

import (
	"encoding/json"
	"errors"

	"github.com/cubbyhq/cubby/internal/errs"
)

// ErrUnprocessable is the cause of the refusal of a request that can be read and not
// done: its answer decides nothing, or what it asks for does not exist here.
var ErrUnprocessable = errors.New("unprocessable")

// Command is what a client says to a thread that waits.
type Command struct {
	Resume json.RawMessage `json:"resume,omitempty"`
	Goto   json.RawMessage `json:"goto,omitempty"`
	Update json.RawMessage `json:"update,omitempty"`
	Graph  json.RawMessage `json:"graph,omitempty"` // null: this one, and there is no other
}

// Normal is a command without what says nothing: clients send {}, and empty lists for
// what they leave out. It is nil when nothing is left.
func (c *Command) Normal() *Command {
	if c == nil {
		return nil
	}
	out := *c
	for _, field := range []*json.RawMessage{&out.Goto, &out.Update} {
		var list []json.RawMessage
		if json.Unmarshal(*field, &list) == nil && len(list) == 0 {
			*field = nil
		}
	}
	if !Given(out.Resume) && !Given(out.Goto) && !Given(out.Update) && !Given(out.Graph) {
		return nil
	}
	return &out
}

// Move is what a command does to a thread before the run goes on.
type Move struct {
	Messages []Message // to add
	Updates  bool      // there is an update, if only an empty one
	Node     string    // that comes next; "": the one that would
}

// Move reads the update and the goto of a command. Invalid, because of
// [ErrUnprocessable], when one has no meaning here.
func (c *Command) Move() (m Move, err error) {
	if Given(c.Graph) {
		return m, unprocessable("command.graph: there is no other graph")
	}
	if Given(c.Update) {
		m.Updates = true
		if m.Messages, err = parseUpdate(c.Update); err != nil {
			return m, unprocessable("command.update: %s", errs.Public(err).Message)
		}
	}
	if !Given(c.Goto) {
		return m, nil
	}
	target := c.Goto
	if is(c.Goto, '[') {
		var targets []json.RawMessage
		if json.Unmarshal(c.Goto, &targets) != nil || len(targets) != 1 {
			return m, unprocessable("command.goto: only one node can come next")
		}
		target = targets[0]
	}
	if json.Unmarshal(target, &m.Node) != nil {
		more, err := m.send(target)
		if err != nil {
			return m, err
		}
		m.Messages, m.Updates = append(m.Messages, more...), m.Updates || len(more) > 0
	}
	switch m.Node {
	case NodeAgent, NodeTools, NodeEnd:
		return m, nil
	}
	return m, unprocessable("command.goto: the graph has no node %.40q", m.Node)
}

// send reads a Send: a node with messages for it, which the thread gets too.
func (m *Move) send(raw json.RawMessage) ([]Message, error) {
	var s struct {
		Node  string          `json:"node"`
		Input json.RawMessage `json:"input"`
		Arg   json.RawMessage `json:"arg"` // as the SDK for Python names it
	}
	if json.Unmarshal(raw, &s) != nil {
		return nil, unprocessable("command.goto: %.80s is neither a node nor a Send", raw)
	}
	m.Node = s.Node
	if !Given(s.Input) {
		s.Input = s.Arg
	}
	var fields map[string]json.RawMessage
	if Given(s.Input) && json.Unmarshal(s.Input, &fields) != nil {
		return nil, unprocessable("command.goto: the input of a Send is not an object with messages")
	}
	for name := range fields {
		if name != "messages" {
			return nil, unprocessable("command.goto: the state has no field %.40q", name)
		}
	}
	messages, err := ParseMessages(fields["messages"])
	if err != nil {
		return nil, unprocessable("command.goto: %s", errs.Public(err).Message)
	}
	return messages, nil
}

// parseUpdate reads an update: {"messages":…}, or a list of pairs of a field and its
// value.
func parseUpdate(raw json.RawMessage) (all []Message, err error) {
	if !is(raw, '[') {
		return ParseInput(raw)
	}
	var pairs [][]json.RawMessage
	if json.Unmarshal(raw, &pairs) != nil {
		return ParseValues(raw)
	}
	for _, pair := range pairs {
		var field string
		if len(pair) != 2 || json.Unmarshal(pair[0], &field) != nil {
			return nil, errs.E(errs.Invalid, "a list of updates has pairs of a field and its value")
		}
		if field != "messages" {
			continue
		}
		more, err := ParseMessages(pair[1])
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

// ParseValues reads new values of a state: {"messages":…}, or a list of such.
func ParseValues(raw json.RawMessage) (all []Message, err error) {
	var list []json.RawMessage
	if !is(raw, '[') || json.Unmarshal(raw, &list) != nil {
		return ParseInput(raw)
	}
	for _, one := range list {
		more, err := ParseInput(one)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

func unprocessable(format string, args ...any) error {
	return errs.E(errs.Invalid, format, args...).Because(ErrUnprocessable)
}
