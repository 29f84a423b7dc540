package loop

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
)

// An approval is born with the answer that makes the calls, and every later checkpoint
// inherits it as long as the calls are in the state without a result. So a person's word
// is needed whoever goes on with the thread, from whichever checkpoint, and however the
// state was changed meanwhile.

// newestAnswer is the model's last message, and where it is; -1: there is none.
func newestAnswer(state []conversation.Entry) (conversation.Message, int) {
	for i := len(state) - 1; i >= 0; i-- {
		if state[i].Message.Type == conversation.AI {
			return state[i].Message, i
		}
	}
	return conversation.Message{}, -1
}

// unanswered are the ids of the calls of the answer at a place that have no result.
func unanswered(state []conversation.Entry, at int) map[string]bool {
	todo := map[string]bool{}
	for _, c := range callsOf(state[at].Message) {
		todo[c.ID] = true
	}
	for _, e := range state[at+1:] {
		if e.Message.Type == conversation.AI {
			break
		}
		delete(todo, e.Message.ToolCallID)
	}
	return todo
}

// undecided is an approval without the calls that have a result in a state, or are not
// in it any more.
func undecided(a *conversation.Approval, state []conversation.Entry) *conversation.Approval {
	if a == nil {
		return nil
	}
	var left []conversation.CallRef
	for i, e := range state {
		if e.Message.Type != conversation.AI {
			continue
		}
		for id := range unanswered(state, i) {
			if c := (conversation.CallRef{Message: e.Message.ID, Call: id}); a.Waits(c) {
				left = append(left, c)
			}
		}
	}
	return approvalFor(left, a.Policy)
}

func approvalFor(calls []conversation.CallRef, p conversation.Policy) *conversation.Approval {
	if len(calls) == 0 {
		return nil
	}
	slices.SortFunc(calls, func(a, b conversation.CallRef) int {
		if a.Message != b.Message {
			return strings.Compare(a.Message, b.Message)
		}
		return strings.Compare(a.Call, b.Call)
	})
	return &conversation.Approval{Calls: slices.Compact(calls), Policy: p}
}

// asksFor adds to an approval the calls of a new answer that a policy asks about.
func asksFor(a *conversation.Approval, p conversation.Policy, answer conversation.Message) *conversation.Approval {
	var asked []conversation.CallRef
	for _, c := range answer.ToolCalls {
		if p.Of(c.Name).Decision == conversation.Ask {
			asked = append(asked, conversation.CallRef{Message: answer.ID, Call: c.ID})
		}
	}
	if len(asked) == 0 {
		return a
	}
	if a != nil {
		asked, p = append(asked, a.Calls...), a.Policy.Stricter(p)
	}
	return approvalFor(asked, p)
}

// Inherit gives a checkpoint that is made out of another one what is undecided there. The
// question stays while it is about the same calls. A call whose result was taken away
// waits, because it was decided about once, and not again; and while anything waits, so
// does every call that was not there or was another one.
func Inherit(c *conversation.Checkpoint, at conversation.Checkpoint, was, now []conversation.Entry) {
	a := approvalOf(at, was)
	var policy conversation.Policy
	if a != nil {
		policy = a.Policy
	}
	before := callsIn(was)
	var waiting []conversation.CallRef
	for ref, is := range callsIn(now) {
		old, there := before[ref]
		if is.open && (a.Waits(ref) || there && !old.open || a != nil && (!there || !reflect.DeepEqual(old.call, is.call))) {
			waiting = append(waiting, ref)
		}
	}
	c.Approval = approvalFor(waiting, policy)
	answer, i := newestAnswer(was)
	same, k := newestAnswer(now)
	if i >= 0 && k >= 0 && same.ID == answer.ID && reflect.DeepEqual(same.ToolCalls, answer.ToolCalls) && maps.Equal(unanswered(now, k), unanswered(was, i)) {
		keepQuestion(c, at)
	}
}

// madeCall is a call of an answer; open: it has no result.
type madeCall struct {
	call conversation.ToolCall
	open bool
}

// callsIn are the calls of a state that can be made.
func callsIn(state []conversation.Entry) map[conversation.CallRef]madeCall {
	calls := map[conversation.CallRef]madeCall{}
	for i, e := range state {
		if e.Message.Type != conversation.AI || len(e.Message.ToolCalls) == 0 {
			continue
		}
		open := unanswered(state, i)
		for _, c := range e.Message.ToolCalls {
			calls[conversation.CallRef{Message: e.Message.ID, Call: c.ID}] = madeCall{c, open[c.ID]}
		}
	}
	return calls
}

// keepQuestion leaves the tools waiting as they do in a checkpoint.
func keepQuestion(c *conversation.Checkpoint, at conversation.Checkpoint) {
	for i := range c.Tasks {
		for _, t := range at.Tasks {
			if t.Name == c.Tasks[i].Name && len(t.Interrupts) > 0 {
				c.Tasks[i].Interrupts = t.Interrupts
			}
		}
	}
}

// approvalOf is the approval of a checkpoint. Of one that an earlier release stored it is
// what its question is about.
func approvalOf(at conversation.Checkpoint, state []conversation.Entry) *conversation.Approval {
	answer, i := newestAnswer(state)
	if at.Approval != nil || at.Question() == "" || i < 0 {
		return at.Approval
	}
	var calls []conversation.CallRef
	for id := range unanswered(state, i) {
		calls = append(calls, conversation.CallRef{Message: answer.ID, Call: id})
	}
	return approvalFor(calls, conversation.Policy{})
}

// CheckAnswer refuses an answer that the question of a checkpoint has no use for. Invalid
// says what one is.
func CheckAnswer(at conversation.Checkpoint, resume json.RawMessage) error {
	for _, t := range at.Tasks {
		for _, i := range t.Interrupts {
			var q question
			if json.Unmarshal(i.Value, &q) != nil {
				continue
			}
			said, err := readDecisions(resume, i.ID)
			if err != nil {
				return err
			}
			_, err = matched(q, said)
			return err
		}
	}
	if !slices.Contains(at.Next, conversation.NodeTools) {
		return nil // it finds no call that it could make
	}
	_, err := readDecisions(resume, "")
	return err
}

func wrongAnswer(format string, args ...any) error {
	return errs.E(errs.Invalid, "resume: "+format, args...).Hint(`an answer has a decision for each call: {"decisions":[{"type":"approve"}]}, {"type":"reject","message":"…"} or ` +
		`{"type":"edit","edited_action":{"name":"…","args":{…}}}`).Because(conversation.ErrUnprocessable)
}
