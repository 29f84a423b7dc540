package anthropic

import (
	"encoding/json"
	"errors"

	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/llm/wire"
)

type event struct {
	Type    string `json:"type"`
	Index   int    `json:"index"`
	Message struct {
		Model string `json:"model"`
		Usage usage  `json:"usage"`
	} `json:"message"`
	ContentBlock struct {
		Type      string          `json:"type"`
		Text      string          `json:"text"`
		Thinking  string          `json:"thinking"`
		Signature string          `json:"signature"`
		Data      string          `json:"data"`
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Input     json.RawMessage `json:"input"`
	} `json:"content_block"`
	Delta struct {
		Type        string `json:"type"`
		Text        string `json:"text"`
		Thinking    string `json:"thinking"`
		Signature   string `json:"signature"`
		PartialJSON string `json:"partial_json"`
		StopReason  string `json:"stop_reason"`
	} `json:"delta"`
	Usage *usage `json:"usage"`
}

// usage has only what is told again in each event.
type usage struct {
	Input      *int `json:"input_tokens"`
	Output     *int `json:"output_tokens"`
	CacheRead  *int `json:"cache_read_input_tokens"`
	CacheWrite *int `json:"cache_creation_input_tokens"`
	Details    *struct {
		Thinking *int `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

// open is a block that has begun.
type open struct {
	kind      string
	index     int // of the thought or the call
	signature string
	redacted  string
	input     string // of a call, as it began
	told      bool   // more of the input came
}

// decoder reads the stream of one answer.
type decoder struct {
	client   *wire.Client
	blocks   map[int]*open
	thoughts int
	calls    int
	model    string
	stop     string
	usage    struct{ input, output, read, write, thinking int }
}

// Decode is as [wire.Decoder] says.
func (d *decoder) Decode(e wire.Event, emit func(llm.Event)) (bool, error) {
	if len(e.Data) == 0 {
		return false, nil
	}
	var m event
	if err := json.Unmarshal(e.Data, &m); err != nil {
		if e.Name == "error" {
			return false, d.client.Fault(0, wire.ReadTrouble(e.Data))
		}
		return false, err
	}
	if m.Type == "" {
		m.Type = e.Name
	}
	switch m.Type {
	case "message_start":
		d.model = m.Message.Model
		emit(d.used(&m.Message.Usage))
	case "content_block_start":
		return false, d.begin(m, emit)
	case "content_block_delta":
		d.more(m, emit)
	case "content_block_stop":
		d.end(m.Index, emit)
	case "message_delta":
		if m.Delta.StopReason != "" {
			d.stop = m.Delta.StopReason
		}
		if m.Usage != nil {
			emit(d.used(m.Usage))
		}
	case "message_stop":
		if d.stop == "" {
			return false, d.client.Broken("the answer ended without a reason")
		}
		emit(llm.Done{Stop: d.reason(), Model: d.model})
		return true, nil
	case "error":
		return false, d.client.Fault(0, wire.ReadTrouble(e.Data))
	}
	// What is left are pings, and events that are not known yet.
	return false, nil
}

// End is as [wire.Decoder] says: the dialect has a mark of the end.
func (d *decoder) End(func(llm.Event)) bool { return false }

func (d *decoder) begin(m event, emit func(llm.Event)) error {
	if d.blocks == nil {
		d.blocks = map[int]*open{}
	}
	b := m.ContentBlock
	o := &open{kind: b.Type}
	d.blocks[m.Index] = o
	switch b.Type {
	case "text":
		if b.Text != "" {
			emit(llm.TextDelta{Text: b.Text})
		}
	case "thinking", "redacted_thinking":
		o.index, o.signature, o.redacted = d.thoughts, b.Signature, b.Data
		d.thoughts++
		if b.Thinking != "" {
			emit(llm.ReasoningDelta{Index: o.index, Text: b.Thinking})
		}
	case "tool_use":
		if b.Name == "" {
			return errors.New("a call without a name")
		}
		o.index = d.calls
		d.calls++
		if string(b.Input) != "{}" && string(b.Input) != "null" {
			o.input = string(b.Input)
		}
		if b.ID == "" {
			b.ID = wire.CallID()
		}
		emit(llm.ToolCallDelta{Index: o.index, ID: b.ID, Name: b.Name})
	}
	return nil
}

func (d *decoder) more(m event, emit func(llm.Event)) {
	o := d.blocks[m.Index]
	if o == nil {
		return
	}
	switch m.Delta.Type {
	case "text_delta":
		if m.Delta.Text != "" {
			emit(llm.TextDelta{Text: m.Delta.Text})
		}
	case "thinking_delta":
		if m.Delta.Thinking != "" {
			emit(llm.ReasoningDelta{Index: o.index, Text: m.Delta.Thinking})
		}
	case "signature_delta":
		o.signature += m.Delta.Signature
	case "input_json_delta":
		if m.Delta.PartialJSON != "" && o.kind == "tool_use" {
			o.told = true
			emit(llm.ToolCallDelta{Index: o.index, Arguments: m.Delta.PartialJSON})
		}
	}
}

func (d *decoder) end(index int, emit func(llm.Event)) {
	o := d.blocks[index]
	if o == nil {
		return
	}
	delete(d.blocks, index)
	switch {
	case o.signature != "" || o.redacted != "":
		emit(llm.ReasoningDelta{Index: o.index, Opaque: wire.Opaque(dialect, thought{o.signature, o.redacted})})
	case o.kind == "tool_use" && o.input != "" && !o.told:
		// Some servers send the input at once.
		emit(llm.ToolCallDelta{Index: o.index, Arguments: o.input})
	}
}

func (d *decoder) used(u *usage) llm.Usage {
	set := func(to *int, from *int) {
		if from != nil {
			*to = *from
		}
	}
	set(&d.usage.input, u.Input)
	set(&d.usage.output, u.Output)
	set(&d.usage.read, u.CacheRead)
	set(&d.usage.write, u.CacheWrite)
	if u.Details != nil {
		set(&d.usage.thinking, u.Details.Thinking)
	}
	// Anthropic counts what is in the cache beside the input.
	return llm.Usage{
		Input: d.usage.input + d.usage.read + d.usage.write, Output: d.usage.output,
		CacheRead: d.usage.read, CacheWrite: d.usage.write, Reasoning: d.usage.thinking,
	}
}

func (d *decoder) reason() llm.Stop {
	switch d.stop {
	case "tool_use":
		return llm.StopTools
	case "max_tokens", "model_context_window_exceeded":
		return llm.StopLength
	case "refusal":
		return llm.StopRefused
	}
	return llm.StopEnd
}
