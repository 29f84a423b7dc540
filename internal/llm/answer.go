package llm

import "strings"

// Answer is an answer of a model as it grows. The zero value is empty.
type Answer struct {
	Parts []Part // in the order in which they began
	Usage Usage
	Stop  Stop // "" before the end
	Model string

	text      *strings.Builder // of the last part, while that is a Text
	thinks    *strings.Builder // of the last part, while that is a Reasoning
	thought   int              // the index of that
	calls     map[int]int      // places in Parts, by index
	arguments map[int]*strings.Builder
}

// Add takes an event in.
func (a *Answer) Add(e Event) {
	switch e := e.(type) {
	case TextDelta:
		a.thinks = nil
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
		a.text, a.thinks = nil, nil
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
	if a.thinks == nil || a.thought != e.Index {
		a.thinks, a.thought = new(strings.Builder), e.Index
		a.Parts = append(a.Parts, Reasoning{})
		last++
	}
	a.thinks.WriteString(e.Text)
	r, _ := a.Parts[last].(Reasoning)
	r.Text = a.thinks.String()
	if e.Opaque != nil {
		r.Opaque = e.Opaque
	}
	a.Parts[last] = r
}

func (a *Answer) call(e ToolCallDelta) {
	a.text, a.thinks = nil, nil
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
