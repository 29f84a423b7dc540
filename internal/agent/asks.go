package agent

import (
	"encoding/json"
	"slices"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/llm"
)

// interruptOn is the setting of a run that says which tools a person is asked about.
const interruptOn = "interrupt_on"

// asksOf is the policy that a request adds to that of settings: tools that a person is
// asked about. Invalid when it asks in words that have no meaning here: to read them as
// nothing would let the tools run.
func asksOf(q conversation.RunRequest, tools []llm.Tool) (conversation.Policy, error) {
	p := conversation.Policy{Tools: map[string]conversation.Rule{}}
	asked, err := interruptsOf(q.Configurable[interruptOn])
	if err != nil {
		return p, err
	}
	known := func(tool string) bool {
		return slices.ContainsFunc(tools, func(t llm.Tool) bool { return t.Name == tool })
	}
	if rule, all := asked["*"]; all {
		p.Others = rule.Decision
		for _, t := range tools {
			p.Tools[t.Name] = rule
		}
		delete(asked, "*")
	}
	for tool, rule := range asked {
		if !known(tool) {
			return p, errs.E(errs.Invalid, "%s: there is no tool %.40q", interruptOn, tool).Because(conversation.ErrUnprocessable)
		}
		p.Tools[tool] = rule
	}
	for field, names := range map[string][]string{"interrupt_before": q.InterruptBefore, "interrupt_after": q.InterruptAfter} {
		for _, name := range names {
			node := name == "*" || name == conversation.NodeAgent || name == conversation.NodeTools
			if !node && !known(name) {
				return p, errs.E(errs.Invalid, "%s: there is no node and no tool %.40q", field, name).Hint("nodes are agent and tools; * is both").Because(conversation.ErrUnprocessable)
			}
			if !node && field == "interrupt_before" && p.Of(name).Decision != conversation.Ask {
				p.Tools[name] = conversation.Rule{Decision: conversation.Ask}
			}
		}
	}
	return p, nil
}

// interruptsOf reads interrupt_on: true or "*" for all tools, or an object that has for
// a tool, or for "*", what LangChain's middleware takes: true, false, the decisions that
// are possible, or those with a description.
func interruptsOf(raw json.RawMessage) (map[string]conversation.Rule, error) {
	if !conversation.Given(raw) {
		return nil, nil
	}
	var all bool
	if json.Unmarshal(raw, &all) == nil && !all {
		return nil, nil
	}
	var word string
	if all || json.Unmarshal(raw, &word) == nil && word == "*" {
		return map[string]conversation.Rule{"*": {Decision: conversation.Ask}}, nil
	}
	var tools map[string]json.RawMessage
	if json.Unmarshal(raw, &tools) != nil {
		return nil, errs.E(errs.Invalid, "%s: %.80s has no meaning", interruptOn, raw).Hint(`it is true, "*" or an object: {"execute_terminal": true}`).Because(conversation.ErrUnprocessable)
	}
	rules := map[string]conversation.Rule{}
	for tool, raw := range tools {
		rule, err := ruleOf(raw)
		if err != nil {
			return nil, errs.E(errs.Invalid, "%s: %.40s: %s", interruptOn, tool, errs.Public(err).Message).
				Hint(`a tool has true, false, or {"allowed_decisions": ["approve", "edit", "reject"], "description": "…"}`).Because(conversation.ErrUnprocessable)
		}
		rules[tool] = rule
	}
	return rules, nil
}

func ruleOf(raw json.RawMessage) (conversation.Rule, error) {
	rule := conversation.Rule{Decision: conversation.Ask}
	var yes bool
	if conversation.Given(raw) && json.Unmarshal(raw, &yes) == nil {
		if !yes {
			rule.Decision = conversation.Allow
		}
		return rule, nil
	}
	var form map[string]json.RawMessage
	if conversation.Given(raw) && json.Unmarshal(raw, &rule.Decisions) != nil {
		rule.Decisions = nil
		if json.Unmarshal(raw, &form) != nil {
			return rule, errs.E(errs.Invalid, "%.80s has no meaning", raw)
		}
	}
	for key, value := range form {
		var err error
		switch key {
		case "allowed_decisions":
			err = json.Unmarshal(value, &rule.Decisions)
		case "description":
			err = json.Unmarshal(value, &rule.Description)
		default:
			return rule, errs.E(errs.Invalid, "%.40q has no meaning", key)
		}
		if err != nil {
			return rule, errs.E(errs.Invalid, "%s: %.80s has no meaning", key, value)
		}
	}
	if len(rule.Decisions) == 0 {
		return rule, errs.E(errs.Invalid, "no decision is possible")
	}
	for _, d := range rule.Decisions {
		if !slices.Contains([]string{"approve", "edit", "reject", "respond"}, d) {
			return rule, errs.E(errs.Invalid, "there is no decision %.40q", d)
		}
	}
	return rule, nil
}
