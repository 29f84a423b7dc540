package llm

import "strings"

// Answer is an answer of a model as it grows. The zero value is empty.
type Answer struct {
	Parts []Part // in the order in which they began
	Usage Usage
	Stop  Stop // "" before the end
	Model string

	text      *strings.Builder // of the last part, while that is a Text
	thought   int              // the index of the last part, while that is a Reasoning
	calls     map[int]int      // places in Parts, by index
	arguments map[int]*strings.Builder
}

// Add takes an event in.
func (a *Answer) Add(e Event) {
	switch e := e.(type) {
	case TextDelta:
		if a.text == nil {
			a.text = new(strings.Builder)
			a.Parts = append(a.Parts, Text{})
		}
		a.text.WriteString(e.Text)
		a.Parts[len(a.Parts)-1] = Text{a.text.String()}
	case ReasoningDelta:
		a.think(e)
	case ToolCallDelta:
		a.call(e)
	case ImageOut:
		a.text = nil
		a.Parts = append(a.Parts, e.Image)
	case Usage:
		a.Usage = e
	case Done:
		a.Stop, a.Model = e.Stop, e.Model
	}
}

func (a *Answer) think(e ReasoningDelta) {
	a.text = nil
	last := len(a.Parts) - 1
	if last >= 0 && a.thought == e.Index {
		if r, ok := a.Parts[last].(Reasoning); ok {
			r.Text += e.Text
			if e.Opaque != nil {
				r.Opaque = e.Opaque
			}
			a.Parts[last] = r
			return
		}
	}
	a.thought = e.Index
	a.Parts = append(a.Parts, Reasoning{e.Text, e.Opaque})
}

func (a *Answer) call(e ToolCallDelta) {
	a.text = nil
	if a.calls == nil {
		a.calls, a.arguments = map[int]int{}, map[int]*strings.Builder{}
	}
	at, there := a.calls[e.Index]
	if !there {
		at = len(a.Parts)
		a.calls[e.Index], a.arguments[e.Index] = at, new(strings.Builder)
		a.Parts = append(a.Parts, ToolCall{})
	}
	c, _ := a.Parts[at].(ToolCall)
	if e.Name != "" {
		c.ID, c.Name = e.ID, e.Name
	}
	if e.Opaque != nil {
		c.Opaque = e.Opaque
	}
	a.arguments[e.Index].WriteString(e.Arguments)
	c.Arguments = a.arguments[e.Index].String()
	a.Parts[at] = c
}

// Calls returns the tool calls of the answer.
func (a *Answer) Calls() []ToolCall {
	var calls []ToolCall
	for _, p := range a.Parts {
		if c, ok := p.(ToolCall); ok {
			calls = append(calls, c)
		}
	}
	return calls
}
