package loop

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/cubbyhq/cubby/internal/conversation"
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
// to decide about pause the run, unless its command brings the decisions.
func (r *run) decide(ctx context.Context, t conversation.Task, answer *conversation.Message, todo map[string]bool) (decisions, error) {
	d := decisions{said: map[string]conversation.Message{}}
	var asked []int // of the answer's calls
	var q question
	for i, c := range answer.ToolCalls {
		if !todo[c.ID] {
			continue
		}
		rule := r.Policy.of(c.Name)
		switch rule.Decision {
		case Deny:
			d.said[c.ID] = denied(c)
		case Ask:
			asked = append(asked, i)
			q.Requests = append(q.Requests, actionRequest{c.Name, c.Args, cmp.Or(rule.Description, "The agent wants to use "+c.Name+".")})
			allowed := rule.Decisions
			if len(allowed) == 0 {
				allowed = []string{approve, edit, reject}
			}
			q.Reviews = append(q.Reviews, reviewConfig{c.Name, allowed})
		}
	}
	if len(asked) == 0 {
		return d, nil
	}
	interrupt := conversation.Interrupt{ID: interruptID(t.ID)}
	if c := r.start.Command; c != nil && conversation.Given(c.Resume) {
		said, err := readDecisions(c.Resume, interrupt.ID)
		r.start.Command = nil // it answers one question
		if err != nil {
			return d, err
		}
		return d, d.apply(r.Policy, answer, asked, q.Reviews, said)
	}
	var err error
	if interrupt.Value, err = json.Marshal(q); err != nil {
		return d, err
	}
	waiting := []conversation.Interrupt{interrupt}
	tasks := slices.Clone(r.at.Tasks)
	for i := range tasks {
		if tasks[i].ID == t.ID {
			tasks[i].Interrupts = waiting
		}
	}
	if err := r.Record.Pause(context.WithoutCancel(ctx), r.at.ID, tasks); err != nil {
		return d, err
	}
	r.at.Tasks = tasks
	if err := r.ended(t, conversation.TaskEnded{Interrupts: waiting}); err != nil {
		return d, err
	}
	return d, &paused{waiting}
}

// denied is the result of a call that the policy does not allow.
func denied(c conversation.ToolCall) conversation.Message {
	return toolMessage(c.ID, c.Name, "The operator does not allow this tool here. Find another way, or say what you cannot do.", true)
}

// interruptID follows from the task that waits.
func interruptID(task string) string {
	id := uuid.NewSHA1(conversation.GraphNamespace, []byte("interrupt "+task))
	return hex.EncodeToString(id[:])
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
	list := make([]decision, len(many.Decisions))
	for i, one := range many.Decisions {
		if json.Unmarshal(one, &list[i].Type) != nil && json.Unmarshal(one, &list[i]) != nil {
			return nil, &failure{kind: "ValueError", message: `a decision is {"type":"approve"}, {"type":"reject","message":…} or {"type":"edit","edited_action":{"name":…,"args":{…}}}`}
		}
		switch list[i].Type {
		case "accept", "yes", "true":
			list[i].Type = approve
		case "ignore", "no", "false":
			list[i].Type = reject
		}
	}
	return list, nil
}

// apply does what a person decided about some of the answer's calls. A person may not
// make a call out of it that the policy denies.
func (d *decisions) apply(p Policy, answer *conversation.Message, asked []int, reviews []reviewConfig, said []decision) error {
	if len(said) == 1 && len(asked) > 1 && (said[0].Type == approve || said[0].Type == reject) {
		for len(said) < len(asked) {
			said = append(said, said[0])
		}
	}
	if len(said) != len(asked) {
		return &failure{kind: "ValueError", message: fmt.Sprintf("%d decisions for %d calls of tools", len(said), len(asked))}
	}
	calls := slices.Clone(answer.ToolCalls)
	for k, i := range asked {
		c, s := &calls[i], said[k]
		if !slices.Contains(reviews[k].Allowed, s.Type) {
			return &failure{kind: "ValueError", message: fmt.Sprintf("%.40q is not a decision about %s that the policy allows", s.Type, c.Name)}
		}
		switch s.Type {
		case approve:
		case edit:
			var object map[string]json.RawMessage
			if json.Unmarshal(s.Edited.Args, &object) != nil || object == nil {
				return &failure{kind: "ValueError", message: "an edited action needs args, which are an object"}
			}
			if name := cmp.Or(s.Edited.Name, c.Name); p.of(name).Decision == Deny {
				return &failure{kind: "ValueError", message: fmt.Sprintf("the policy does not allow the tool %.40q", name)}
			}
			c.Name, c.Args, d.edited = cmp.Or(s.Edited.Name, c.Name), s.Edited.Args, true
		case reject:
			d.said[c.ID] = toolMessage(c.ID, c.Name, "The user did not allow this call."+words(s.Message), true)
		case respond:
			d.said[c.ID] = toolMessage(c.ID, c.Name, cmp.Or(s.Message, "(no answer)"), false)
		default:
			return &failure{kind: "ValueError", message: fmt.Sprintf("there is no decision %.40q", s.Type)}
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
