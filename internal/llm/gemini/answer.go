package gemini

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/llm/wire"
)

type chunk struct {
	Candidates []struct {
		Index         int     `json:"index"`
		Content       content `json:"content"`
		FinishReason  string  `json:"finishReason"`
		FinishMessage string  `json:"finishMessage"`
	} `json:"candidates"`
	PromptFeedback struct {
		BlockReason        string `json:"blockReason"`
		BlockReasonMessage string `json:"blockReasonMessage"`
	} `json:"promptFeedback"`
	UsageMetadata *usage          `json:"usageMetadata"`
	ModelVersion  string          `json:"modelVersion"`
	Error         json.RawMessage `json:"error"`
}

type usage struct {
	Prompt   int `json:"promptTokenCount"` // with what is in the cache
	Answer   int `json:"candidatesTokenCount"`
	Cached   int `json:"cachedContentTokenCount"`
	Thoughts int `json:"thoughtsTokenCount"` // beside the answer's
	ToolUse  int `json:"toolUsePromptTokenCount"`
}

// decoder reads the stream of one answer.
type decoder struct {
	client   *wire.Client
	thoughts int
	thinks   bool // the last part was a thought
	calls    int
	said     bool
	finish   string
	message  string
	blocked  bool
	model    string
}

// Decode is as [wire.Decoder] says.
func (d *decoder) Decode(e wire.Event, emit func(llm.Event)) (bool, error) {
	if len(e.Data) == 0 {
		return false, nil
	}
	if string(e.Data) == "[DONE]" {
		return false, nil // gateways add it
	}
	var c chunk
	if err := json.Unmarshal(e.Data, &c); err != nil && e.Name != "error" {
		return false, err
	}
	if len(c.Error) > 0 && string(c.Error) != "null" || e.Name == "error" {
		return false, d.client.Fault(0, wire.ReadTrouble(e.Data))
	}
	if c.ModelVersion != "" {
		d.model = c.ModelVersion
	}
	if c.PromptFeedback.BlockReason != "" {
		d.blocked = true
	}
	for _, candidate := range c.Candidates {
		if candidate.Index != 0 {
			continue
		}
		for _, p := range candidate.Content.Parts {
			if p == nil {
				continue
			}
			if err := d.part(p, emit); err != nil {
				return false, err
			}
		}
		if candidate.FinishReason != "" {
			d.finish, d.message = candidate.FinishReason, candidate.FinishMessage
		}
	}
	if u := c.UsageMetadata; u != nil {
		emit(llm.Usage{Input: u.Prompt + u.ToolUse, Output: u.Answer + u.Thoughts, CacheRead: u.Cached, Reasoning: u.Thoughts})
	}
	switch d.finish {
	case "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE", "NO_IMAGE":
		return false, d.client.Broken("the model stopped with " + d.finish + ": " + d.message)
	}
	return false, nil
}

func (d *decoder) part(p *part, emit func(llm.Event)) error {
	text := ""
	if p.Text != nil {
		text = *p.Text
	}
	if p.Thought && p.FunctionCall == nil {
		d.thinks = true
		if text != "" {
			emit(llm.ReasoningDelta{Index: d.thoughts, Text: text})
		}
		if p.ThoughtSignature != "" {
			d.sign(p.ThoughtSignature, true, emit)
		}
		return nil
	}
	if d.thinks {
		d.thinks = false
		d.thoughts++
	}
	switch {
	case p.FunctionCall != nil:
		return d.call(p, emit)
	case p.InlineData != nil:
		data, err := base64.StdEncoding.DecodeString(p.InlineData.Data)
		if err != nil {
			return fmt.Errorf("an image that is no base64: %w", err)
		}
		d.said = true
		emit(llm.ImageOut{Image: llm.Image{MIME: p.InlineData.MIMEType, Data: data}})
	case p.FileData != nil:
		d.said = true
		emit(llm.ImageOut{Image: llm.Image{MIME: p.FileData.MIMEType, URL: p.FileData.FileURI}})
	case text != "":
		d.said = true
		emit(llm.TextDelta{Text: text})
	}
	if p.ThoughtSignature != "" {
		d.sign(p.ThoughtSignature, false, emit)
	}
	return nil
}

// sign passes a signature on as a thought of its own, or as the end of the one
// that it is of.
func (d *decoder) sign(signature string, thought bool, emit func(llm.Event)) {
	emit(llm.ReasoningDelta{Index: d.thoughts, Opaque: wire.Opaque(dialect, opaque{Signature: signature, Thought: thought})})
	d.thoughts++
	d.thinks = false
}

func (d *decoder) call(p *part, emit func(llm.Event)) error {
	c := p.FunctionCall
	if c.Name == "" {
		return errors.New("a call without a name")
	}
	out := llm.ToolCallDelta{Index: d.calls, ID: c.ID, Name: c.Name, Arguments: string(c.Args)}
	if out.ID == "" {
		out.ID = wire.CallID()
	}
	if string(c.Args) == "{}" || string(c.Args) == "null" {
		out.Arguments = ""
	}
	if p.ThoughtSignature != "" || c.ID != "" {
		out.Opaque = wire.Opaque(dialect, opaque{Signature: p.ThoughtSignature, ID: c.ID})
	}
	d.calls++
	d.said = true
	emit(out)
	return nil
}

// End is as [wire.Decoder] says. The dialect has no mark of the end but the reason.
func (d *decoder) End(emit func(llm.Event)) bool {
	stop := llm.StopEnd
	switch d.finish {
	case "":
		if !d.blocked {
			return false
		}
		stop = llm.StopRefused
	case "MAX_TOKENS":
		stop = llm.StopLength
	case "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE",
		"IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION":
		stop = llm.StopRefused
	default:
		if !d.said && d.finish != "STOP" {
			return false
		}
		if d.calls > 0 {
			stop = llm.StopTools
		}
	}
	emit(llm.Done{Stop: stop, Model: d.model})
	return true
}
