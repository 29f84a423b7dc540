package openai

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/llm/wire"
)

type chunk struct {
	Model   string          `json:"model"`
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Groq    *groq           `json:"x_groq"`
	Error   json.RawMessage `json:"error"`
}

type groq struct {
	Usage *usage `json:"usage"`
}

type choice struct {
	Index        int    `json:"index"`
	Delta        delta  `json:"delta"`
	FinishReason string `json:"finish_reason"`
}

type delta struct {
	Content          words             `json:"content"`
	Refusal          string            `json:"refusal"`
	ReasoningContent string            `json:"reasoning_content"`
	Reasoning        string            `json:"reasoning"`
	ReasoningDetails []json.RawMessage `json:"reasoning_details"`
	ToolCalls        []callDelta       `json:"tool_calls"`
	Images           []struct {
		ImageURL imageURL `json:"image_url"`
	} `json:"images"`
}

type callDelta struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string    `json:"name"`
		Arguments arguments `json:"arguments"`
	} `json:"function"`
}

type usage struct {
	PromptTokens     int      `json:"prompt_tokens"`
	CompletionTokens int      `json:"completion_tokens"`
	Cost             *float64 `json:"cost"`                    // OpenRouter
	CacheHit         int      `json:"prompt_cache_hit_tokens"` // DeepSeek
	PromptDetails    struct {
		Cached     int `json:"cached_tokens"`
		CacheWrite int `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// words is text, as a string or as Mistral's list of parts.
type words struct{ text, thought string }

func (w *words) UnmarshalJSON(b []byte) error {
	*w = words{}
	if len(b) == 0 || b[0] != '[' {
		return json.Unmarshal(b, &w.text)
	}
	var parts []struct {
		Text     string `json:"text"`
		Thinking []struct {
			Text string `json:"text"`
		} `json:"thinking"`
	}
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	var text, thought strings.Builder
	for _, p := range parts {
		text.WriteString(p.Text)
		for _, t := range p.Thinking {
			thought.WriteString(t.Text)
		}
	}
	w.text, w.thought = text.String(), thought.String()
	return nil
}

// arguments are a string of JSON; some servers send the object itself.
type arguments string

func (a *arguments) UnmarshalJSON(b []byte) error {
	var text string
	switch {
	case bytes.HasPrefix(b, []byte("{")):
		text = string(b)
	default:
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
	}
	*a = arguments(text)
	return nil
}

// call is one that is told piece by piece.
type call struct {
	key      int // the provider's index
	index    int // ours, in the order of the names
	id, name string
	waiting  strings.Builder // arguments that came before the name
}

// decoder reads the stream of one answer.
type decoder struct {
	client  *wire.Client
	calls   []*call
	named   int // of them
	finish  string
	refused bool
	model   string
	thinks  bool // the last that came was a thought
	thought int  // its index
	field   string
	details []detail
}

// Decode is as [wire.Decoder] says.
func (d *decoder) Decode(e wire.Event, emit func(llm.Event)) (bool, error) {
	data := bytes.TrimSpace(e.Data)
	if string(data) == "[DONE]" {
		if !d.End(emit) {
			return false, d.client.Broken("the answer ended without a reason")
		}
		return true, nil
	}
	if len(data) == 0 {
		return false, nil
	}
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil && e.Name != "error" {
		return false, err
	}
	if len(c.Error) > 0 && string(c.Error) != "null" || e.Name == "error" {
		return false, d.client.Fault(0, wire.ReadTrouble(data))
	}
	if len(c.Choices) == 0 && c.Usage == nil {
		// vLLM's errors are no error field but the whole object.
		if t := wire.ReadTrouble(data); t.Said && t.Message != "" {
			return false, d.client.Fault(0, t)
		}
	}
	if c.Model != "" {
		d.model = c.Model
	}
	for _, choice := range c.Choices {
		if choice.Index == 0 {
			if err := d.choice(choice, emit); err != nil {
				return false, err
			}
		}
	}
	switch {
	case c.Usage != nil:
		emit(c.Usage.event())
	case c.Groq != nil && c.Groq.Usage != nil:
		emit(c.Groq.Usage.event())
	}
	return false, nil
}

func (d *decoder) choice(c choice, emit func(llm.Event)) error {
	d.reasoning(c.Delta, emit)
	if len(d.details) > maxDetails {
		return d.client.Broken("a thought of the answer has too many parts")
	}
	if text := c.Delta.Content.text; text != "" {
		d.endThought(emit)
		emit(llm.TextDelta{Text: text})
	}
	if c.Delta.Refusal != "" {
		d.endThought(emit)
		d.refused = true
		emit(llm.TextDelta{Text: c.Delta.Refusal})
	}
	for _, t := range c.Delta.ToolCalls {
		d.endThought(emit)
		d.call(t, emit)
		if len(d.calls) > wire.MaxCalls { // also those without a name, which nobody is told of
			return d.client.Broken(fmt.Sprintf("the answer has more than %d calls of tools", wire.MaxCalls))
		}
	}
	for _, i := range c.Delta.Images {
		d.endThought(emit)
		image, err := imageOf(i.ImageURL.URL)
		if err != nil {
			return err
		}
		emit(llm.ImageOut{Image: image})
	}
	if c.FinishReason != "" {
		d.finish = c.FinishReason
	}
	return nil
}

func (d *decoder) reasoning(c delta, emit func(llm.Event)) {
	text, field := c.ReasoningContent, "reasoning_content"
	if text == "" {
		text, field = c.Reasoning, "reasoning"
	}
	if text == "" && c.Content.thought != "" {
		text, field = c.Content.thought, ""
	}
	for _, raw := range c.ReasoningDetails {
		d.details = addDetail(d.details, raw)
	}
	if text == "" && len(c.ReasoningDetails) == 0 {
		return
	}
	d.thinks = true
	if text != "" {
		d.field = field
		emit(llm.ReasoningDelta{Index: d.thought, Text: text})
	}
}

// endThought ends a thought when something else comes.
func (d *decoder) endThought(emit func(llm.Event)) {
	if !d.thinks {
		return
	}
	d.thinks = false
	t := thought{Field: d.field}
	if len(d.details) > 0 {
		t.Details, _ = json.Marshal(d.details) // what was JSON is
	}
	if t.Field != "" || t.Details != nil {
		emit(llm.ReasoningDelta{Index: d.thought, Opaque: wire.Opaque(dialect, t)})
	}
	d.thought++
	d.details = nil
}

// call takes a piece of a call. Pieces of one have its index; some servers give all
// calls the same one, or none, and tell them apart by ids alone.
func (d *decoder) call(t callDelta, emit func(llm.Event)) {
	at := d.find(t)
	if at < 0 {
		key := len(d.calls)
		if t.Index != nil {
			key = *t.Index
		}
		at = len(d.calls)
		d.calls = append(d.calls, &call{key: key})
	}
	c := d.calls[at]
	if c.id == "" {
		c.id = t.ID
	}
	text := string(t.Function.Arguments)
	switch {
	case c.name == "" && t.Function.Name == "":
		c.waiting.WriteString(text)
	case c.name == "":
		c.name, c.index = t.Function.Name, d.named
		d.named++
		if c.id == "" {
			c.id = wire.CallID()
		}
		emit(llm.ToolCallDelta{Index: c.index, ID: c.id, Name: c.name, Arguments: c.waiting.String() + text})
	case text != "":
		emit(llm.ToolCallDelta{Index: c.index, Arguments: text})
	}
}

// find returns which call a piece belongs to, -1 when it begins one.
func (d *decoder) find(t callDelta) int {
	if t.Index == nil {
		if t.ID == "" && t.Function.Name == "" {
			return len(d.calls) - 1
		}
		for i, c := range d.calls {
			if t.ID != "" && c.id == t.ID {
				return i
			}
		}
		return -1
	}
	for i := len(d.calls) - 1; i >= 0; i-- {
		c := d.calls[i]
		if c.key != *t.Index {
			continue
		}
		if t.ID != "" && c.id != "" && t.ID != c.id && t.Function.Name != "" {
			return -1
		}
		return i
	}
	return -1
}

// End is as [wire.Decoder] says. Not every server sends the mark of the end, but
// each gives a reason.
func (d *decoder) End(emit func(llm.Event)) bool {
	if d.finish == "" || d.finish == "error" {
		return false
	}
	for _, c := range d.calls {
		if c.name == "" {
			return false
		}
	}
	d.endThought(emit)
	emit(llm.Done{Stop: d.stop(), Model: d.model})
	return true
}

func (d *decoder) stop() llm.Stop {
	switch {
	case d.refused || d.finish == "content_filter":
		return llm.StopRefused
	case d.finish == "length":
		return llm.StopLength
	case len(d.calls) > 0:
		return llm.StopTools // some servers say "stop"
	}
	return llm.StopEnd
}

func (u *usage) event() llm.Usage {
	return llm.Usage{
		Input: u.PromptTokens, Output: u.CompletionTokens, Cost: u.Cost,
		CacheRead: max(u.PromptDetails.Cached, u.CacheHit), CacheWrite: u.PromptDetails.CacheWrite, Reasoning: u.CompletionDetails.Reasoning,
	}
}

func imageOf(url string) (llm.Image, error) {
	rest, inline := strings.CutPrefix(url, "data:")
	if !inline {
		return llm.Image{URL: url}, nil
	}
	mime, text, ok := strings.Cut(rest, ";base64,")
	if !ok {
		return llm.Image{}, fmt.Errorf("an image that is no base64")
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return llm.Image{}, fmt.Errorf("an image that is no base64: %w", err)
	}
	return llm.Image{MIME: mime, Data: data}, nil
}
