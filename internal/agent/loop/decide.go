package loop

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
)

// The shapes of a question about tools and of its answer are those of LangChain's
// human-in-the-loop middleware, which chat clients know how to show.

// question is the value of an interrupt.
type question struct {
	Requests []actionRequest `json:"action_requests"`
	Reviews  []reviewConfig  `json:"review_configs"`
}

type actionRequest struct {
	Name        string          `json:"name"`
	Args        json.RawMessage `json:"args"`
	Description string          `json:"description,omitempty"`
}

type reviewConfig struct {
	Name    string   `json:"action_name"`
	Allowed []string `json:"allowed_decisions"`
}

// The decisions of a person.
const (
	approve = "approve"
	edit    = "edit"
	reject  = "reject"
	respond = "respond" // the person's words are the result
)

type decision struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	Edited  struct {
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	} `json:"edited_action"`
}

// decisions is what becomes of the calls of an answer before any is made.
type decisions struct {
	said   map[string]conversation.Message // results of calls that are not made
	edited bool                            // the answer has other calls than the model made
}

// decide applies the policy to the calls that are to be made. Those that a person has
// to decide about pause the run, unless its command brings the decisions. It is the
// policy of the run that made the calls, and what this one's is stricter in.
func (r *run) decide(ctx context.Context, t conversation.Task, answer *conversation.Message, todo map[string]bool) (decisions, error) {
	d := decisions{said: map[string]conversation.Message{}}
	command := r.start.Command
	r.start.Command = nil // it answers what was asked before the run, and nothing that is asked in it
	policy, waits := r.Policy, func(c conversation.ToolCall) bool {
		return r.at.Approval.Waits(conversation.CallRef{Message: answer.ID, Call: c.ID})
	}
	if slices.ContainsFunc(answer.ToolCalls, func(c conversation.ToolCall) bool { return todo[c.ID] && waits(c) }) {
		policy = r.at.Approval.Policy.Stricter(policy)
	}
	var open, asked []int // of the answer's calls
	var q, all question
	for i, c := range answer.ToolCalls {
		if !todo[c.ID] {
			continue
		}
		switch rule := policy.Of(c.Name); {
		case rule.Decision == conversation.Deny:
			d.said[c.ID] = denied(c)
		case rule.Decision == conversation.Ask, waits(c):
			asked = append(asked, i)
			q.add(c, rule)
		default:
			open = append(open, i)
			all.add(c, rule)
		}
	}
	answered := command != nil && conversation.Given(command.Resume)
	if len(asked) == 0 {
		if answered && len(open) > 0 { // at a breakpoint: what a person says of the calls there holds
			return d, d.decided(policy, answer, open, all, command.Resume, "")
		}
		return d, nil
	}
	var interrupt conversation.Interrupt
	if len(t.Interrupts) > 0 {
		interrupt = t.Interrupts[0]
	}
	same := q.is(interrupt.Value)
	if answered && same && interrupt.ID == r.start.Question {
		return d, d.decided(policy, answer, asked, q, command.Resume, interrupt.ID)
	}
	if !same {
		var err error
		if interrupt, err = q.interrupt(t, interrupt.ID); err != nil {
			return d, err
		}
	}
	return d, r.pause(ctx, t, interrupt, asksFor(r.at.Approval, policy, *answer), answered && same)
}

// pause ends the run with a question. unasked: the run brought an answer, to another one.
func (r *run) pause(ctx context.Context, t conversation.Task, i conversation.Interrupt, a *conversation.Approval, unasked bool) error {
	waiting := []conversation.Interrupt{i}
	tasks := slices.Clone(r.at.Tasks)
	for k := range tasks {
		if tasks[k].ID == t.ID {
			tasks[k].Interrupts = waiting
		}
	}
	r.at.Tasks, r.at.Approval = tasks, a
	if err := r.Record.Pause(context.WithoutCancel(ctx), r.at); err != nil {
		return err
	}
	if unasked {
		return &failure{kind: "ValueError", message: "the answer came before the question that the thread waits with was asked: answer that one"}
	}
	if err := r.ended(t, conversation.TaskEnded{Interrupts: waiting}); err != nil {
		return err
	}
	return &paused{waiting}
}

// add asks about a call.
func (q *question) add(c conversation.ToolCall, rule conversation.Rule) {
	q.Requests = append(q.Requests, actionRequest{c.Name, c.Args, cmp.Or(rule.Description, "The agent wants to use "+c.Name+".")})
	allowed := rule.Decisions
	if len(allowed) == 0 {
		allowed = []string{approve, edit, reject}
	}
	q.Reviews = append(q.Reviews, reviewConfig{c.Name, allowed})
}

// is reports whether an interrupt asks about the same calls.
func (q question) is(value json.RawMessage) bool {
	var other question
	if json.Unmarshal(value, &other) != nil || len(other.Requests) != len(q.Requests) {
		return false
	}
	for i, r := range q.Requests {
		var a, b any
		if json.Unmarshal(r.Args, &a) != nil || json.Unmarshal(other.Requests[i].Args, &b) != nil || r.Name != other.Requests[i].Name || !reflect.DeepEqual(a, b) {
			return false
		}
	}
	return true
}

// interrupt asks the question for a task. Its id is not that of another question of the
// task, so that no answer to that one is one to this.
func (q question) interrupt(t conversation.Task, before string) (i conversation.Interrupt, err error) {
	seed := "interrupt " + t.ID
	if before != "" {
		seed += " " + before
	}
	id := uuid.NewSHA1(conversation.GraphNamespace, []byte(seed))
	i.ID = hex.EncodeToString(id[:])
	i.Value, err = json.Marshal(q)
	return i, err
}

// denied is the result of a call that the policy does not allow.
func denied(c conversation.ToolCall) conversation.Message {
	return toolMessage(c.ID, c.Name, "The operator does not allow this tool here. Find another way, or say what you cannot do.", true)
}

// readDecisions reads what a command resumes with: {"decisions":[…]}, that below the
// interrupt's id, a list of decisions, a single one, or the name of one.
func readDecisions(raw json.RawMessage, id string) ([]decision, error) {
	var byID map[string]json.RawMessage
	if json.Unmarshal(raw, &byID) == nil && byID[id] != nil {
		raw = byID[id]
	}
	var many struct {
		Decisions []json.RawMessage `json:"decisions"`
	}
	if json.Unmarshal(raw, &many.Decisions) != nil {
		if json.Unmarshal(raw, &many) != nil || many.Decisions == nil {
			many.Decisions = []json.RawMessage{raw}
		}
	}
	if len(many.Decisions) == 0 {
		return nil, wrongAnswer("it has no decision")
	}
	list := make([]decision, len(many.Decisions))
	for i, one := range many.Decisions {
		if json.Unmarshal(one, &list[i].Type) != nil && json.Unmarshal(one, &list[i]) != nil {
			return nil, wrongAnswer("%.80s is not a decision", one)
		}
		switch list[i].Type {
		case "accept":
			list[i].Type = approve
		case "ignore":
			list[i].Type = reject
		}
		switch list[i].Type {
		case approve, edit, reject, respond:
		default:
			return nil, wrongAnswer("%.80s is not a decision", one)
		}
	}
	return list, nil
}

// matched are decisions with the requests of a question that they are about: one for
// each. A single rejection is of all.
func matched(q question, said []decision) ([]decision, error) {
	if len(said) == 1 && said[0].Type == reject {
		for len(said) < len(q.Requests) {
			said = append(said, said[0])
		}
	}
	if len(said) != len(q.Requests) {
		return nil, wrongAnswer("%d decisions for %d calls of tools", len(said), len(q.Requests))
	}
	for k, s := range said {
		var object map[string]json.RawMessage
		switch {
		case k < len(q.Reviews) && !slices.Contains(q.Reviews[k].Allowed, s.Type):
			return nil, wrongAnswer("%.40q is not allowed for %s: %s", s.Type, q.Requests[k].Name, strings.Join(q.Reviews[k].Allowed, ", "))
		case s.Type == edit && (json.Unmarshal(s.Edited.Args, &object) != nil || object == nil):
			return nil, wrongAnswer("an edit needs an edited_action with args, which are an object")
		}
	}
	return said, nil
}

// decided does what a person decided about some of the answer's calls. A person may not
// make a call out of it that the policy denies.
func (d *decisions) decided(p conversation.Policy, answer *conversation.Message, asked []int, q question, resume json.RawMessage, id string) error {
	said, err := readDecisions(resume, id)
	if err == nil {
		said, err = matched(q, said)
	}
	if err != nil {
		return &failure{kind: "ValueError", message: errs.Public(err).Message, cause: err}
	}
	calls := slices.Clone(answer.ToolCalls)
	for k, i := range asked {
		c, s := &calls[i], said[k]
		switch s.Type {
		case edit:
			name := cmp.Or(s.Edited.Name, c.Name)
			if p.Of(name).Decision == conversation.Deny {
				return &failure{kind: "ValueError", message: fmt.Sprintf("the policy does not allow the tool %.40q", name)}
			}
			c.Name, c.Args, d.edited = name, s.Edited.Args, true
		case reject:
			d.said[c.ID] = toolMessage(c.ID, c.Name, "The user did not allow this call."+words(s.Message), true)
		case respond:
			d.said[c.ID] = toolMessage(c.ID, c.Name, cmp.Or(s.Message, "(no answer)"), false)
		}
	}
	if d.edited {
		answer.ToolCalls = calls
	}
	return nil
}

func words(message string) string {
	if message == "" {
		return " Do not try it again unasked."
	}
	return " They said: " + message
}
