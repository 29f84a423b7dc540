package tools

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cubbyhq/cubby/internal/core/tasks"
	"github.com/cubbyhq/cubby/internal/task"
)

const (
	// maxTaskFiles is how many names of files an answer has, and maxTaskNames bounds
	// what they take.
	maxTaskFiles = 200
	maxTaskNames = 32 << 10
	// maxTaskAnswer bounds what the events in an answer take.
	maxTaskAnswer = 64 << 10
	// maxTaskText bounds the text of one event, as it is sent.
	maxTaskText = 8 << 10
)

// newestEvents keeps the newest events of a task that fit into an answer.
type newestEvents struct {
	events  []taskEvent
	omitted int
	next    int64
	weight  int
}

// add adds an event; question reports whether it is one that waits for an answer.
// What comes in pieces comes whole too, so the pieces are left out, and so is the
// end, which is the result.
func (n *newestEvents) add(e tasks.Event) (question bool) {
	n.next = e.ID + 1
	if e.Type == task.DeltaType || e.Type == task.DoneType || e.Type == task.UsageType {
		return false
	}
	said, question := told(e)
	said, _ = Bounded(said, maxTaskText)
	n.events = append(n.events, taskEvent{e.Type, said})
	n.weight += Weight(said) + len(e.Type)
	for len(n.events) > 1 && n.weight > maxTaskAnswer {
		n.weight -= Weight(n.events[0].Text) + len(n.events[0].Type)
		n.events, n.omitted = n.events[1:], n.omitted+1
	}
	return question
}

// told is an event in words.
func told(e tasks.Event) (text string, question bool) {
	switch e.Type {
	case task.StatusType:
		s := as[task.Status](e)
		return string(s.Phase), false
	case task.MessageType, task.ThoughtType:
		m := as[task.Message](e)
		if m.Role == task.RoleError {
			return "error: " + m.Text, false
		}
		return m.Text, false
	case task.ToolType:
		t := as[task.Tool](e)
		text := strings.TrimSpace(t.Name+" "+t.Path) + ": " + t.Status
		if t.Status == "error" && t.Output != "" {
			text += "\n" + t.Output
		}
		return text, false
	case task.PlanType:
		var lines []string
		for _, entry := range as[task.Plan](e).Entries {
			lines = append(lines, entry.Status+": "+entry.Content)
		}
		return strings.Join(lines, "\n"), false
	case task.DiffType:
		d := as[task.Diff](e)
		return d.Status + " " + d.Path + "\n" + d.Patch, false
	case task.BuildType:
		b := as[task.Build](e)
		if b.OK {
			return "ok", false
		}
		return "failed: " + b.Message, false
	case task.PushType:
		p := as[task.Push](e)
		if p.OK {
			return "pushed " + p.Commit + " to " + p.Branch, false
		}
		return "failed: " + p.Message, false
	case task.PermissionType:
		return asked(as[task.Permission](e))
	}
	return string(e.Data), false
}

// asked is a question of an agent, with what it can be answered by.
func asked(p task.Permission) (text string, question bool) {
	if p.Status != "pending" {
		return fmt.Sprintf("question %s was answered: %s", p.ID, p.Outcome), false
	}
	var options []string
	for _, o := range p.Options {
		options = append(options, fmt.Sprintf("%s (%s)", o.ID, o.Name))
	}
	return fmt.Sprintf("question %s: may it %s? options: %s", p.ID, strings.TrimSpace(p.Tool.Name+" "+p.Tool.Path), strings.Join(options, ", ")), true
}

// as is the data of an event; the zero value where it is not what its type says.
func as[T any](e tasks.Event) T {
	var v T
	_ = json.Unmarshal(e.Data, &v) // an agent's fault
	return v
}

// someNames are as many names of files as an answer has.
func someNames(files []string) []string {
	names, room := []string{}, maxTaskNames
	for _, name := range files[:min(len(files), maxTaskFiles)] {
		if room -= Weight(name); room < 0 {
			break
		}
		names = append(names, name)
	}
	return names
}
