package conversation

import "slices"

// Decision is what a policy says of a tool.
type Decision string

// The decisions of a policy.
const (
	Allow Decision = "allow"
	Ask   Decision = "ask"  // a person decides each time
	Deny  Decision = "deny" // the model is told that it may not
)

// Policy is the decision for each tool. Its zero value allows all.
type Policy struct {
	Tools map[string]Rule `json:"tools,omitempty"`
	// Others is for tools that Tools does not have; "" allows them.
	Others Decision `json:"others,omitempty"`
}

// Rule is the policy for one tool. Decisions are what a person may say; none means
// approve, edit and reject.
type Rule struct {
	Decision    Decision `json:"decision"`
	Decisions   []string `json:"allowed_decisions,omitempty"`
	Description string   `json:"description,omitempty"` // for that person; "": cubby's words
}

// Of is the rule for a tool.
func (p Policy) Of(tool string) Rule {
	rule, there := p.Tools[tool]
	if !there {
		rule.Decision = p.Others
	}
	return rule
}

// Stricter is the policy that allows what both allow. Where both ask, p says what the
// person may decide.
func (p Policy) Stricter(q Policy) Policy {
	stricter := func(a, b Rule) Rule {
		if rank(b.Decision) > rank(a.Decision) {
			return b
		}
		return a
	}
	out := Policy{Tools: map[string]Rule{}, Others: stricter(Rule{Decision: p.Others}, Rule{Decision: q.Others}).Decision}
	for _, tools := range []map[string]Rule{p.Tools, q.Tools} {
		for tool := range tools {
			out.Tools[tool] = stricter(p.Of(tool), q.Of(tool))
		}
	}
	return out
}

func rank(d Decision) int {
	return slices.Index([]Decision{"", Allow, Ask, Deny}, d)
}

// CallRef names a call of a tool. The ids of calls alone do not: some providers count
// them anew in each answer.
type CallRef struct {
	Message string `json:"message"`
	Call    string `json:"call"`
}

// Approval is the calls of a state that a person has to decide about before they are
// made, and the policy of the run that made them. It stays with the thread until they
// are decided, whatever the policy of a later run is.
type Approval struct {
	Calls  []CallRef `json:"calls"`
	Policy Policy    `json:"policy"`
}

// Waits reports whether a call is one of the approval's. A nil approval has none.
func (a *Approval) Waits(c CallRef) bool { return a != nil && slices.Contains(a.Calls, c) }
