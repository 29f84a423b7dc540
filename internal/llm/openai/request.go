package openai

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/llm/wire"
)

const dialect = "openai"

type request struct {
	Model               string         `json:"model"`
	Messages            []any          `json:"messages"`
	Tools               []tool         `json:"tools,omitempty"`
	MaxTokens           int            `json:"max_tokens,omitempty"`
	MaxCompletionTokens int            `json:"max_completion_tokens,omitempty"`
	Temperature         *float64       `json:"temperature,omitempty"`
	ReasoningEffort     llm.Effort     `json:"reasoning_effort,omitempty"`
	Reasoning           *reasoning     `json:"reasoning,omitempty"`
	Stream              bool           `json:"stream"`
	StreamOptions       *streamOptions `json:"stream_options,omitempty"`
	Usage               *usageOptions  `json:"usage,omitempty"`
}

type reasoning struct {
	Effort llm.Effort `json:"effort"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type usageOptions struct {
	Include bool `json:"include"`
}

type tool struct {
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
}

// message is one of the system's, the user's or a tool's.
type message struct {
	Role       string `json:"role"`
	Content    any    `json:"content"` // a string, or []content
	ToolCallID string `json:"tool_call_id,omitempty"`
}

// assistant is what the model said.
type assistant struct {
	Role             string          `json:"role"`
	Content          *string         `json:"content"`
	ReasoningContent string          `json:"reasoning_content,omitempty"`
	Reasoning        string          `json:"reasoning,omitempty"`
	ReasoningDetails json.RawMessage `json:"reasoning_details,omitempty"`
	ToolCalls        []toolCall      `json:"tool_calls,omitempty"`
}

type toolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function callFunction `json:"function"`
}

type callFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type content struct {
	Type     string    `json:"type"`
	Text     *string   `json:"text,omitempty"`
	ImageURL *imageURL `json:"image_url,omitempty"`
	File     *file     `json:"file,omitempty"`
}

type imageURL struct {
	URL string `json:"url"`
}

type file struct {
	Filename string `json:"filename,omitempty"`
	FileData string `json:"file_data"`
}

func (p *Provider) encode(r llm.Request) ([]byte, error) {
	out := request{Model: r.Model, Temperature: r.Temperature, Stream: true}
	if p.config.CompletionTokens {
		out.MaxCompletionTokens = r.MaxTokens
	} else {
		out.MaxTokens = r.MaxTokens
	}
	if !p.config.NoStreamOptions {
		out.StreamOptions = &streamOptions{true}
	}
	switch {
	case p.config.OpenRouter:
		out.Usage = &usageOptions{true}
		if r.Effort != "" {
			out.Reasoning = &reasoning{r.Effort}
		}
	default:
		out.ReasoningEffort = r.Effort
	}
	for _, t := range r.Tools {
		out.Tools = append(out.Tools, tool{"function", function{t.Name, t.Description, wire.Schema(t)}})
	}
	if r.System != "" {
		out.Messages = append(out.Messages, message{Role: "system", Content: r.System})
	}
	turns, err := wire.Turns(r.Messages)
	if err != nil {
		return nil, err
	}
	question := lastQuestion(turns)
	for i, m := range turns {
		if m.Role == llm.User {
			out.Messages, err = addUser(out.Messages, m)
		} else {
			out.Messages, err = addAssistant(out.Messages, m, i > question)
		}
		if err != nil {
			return nil, err
		}
	}
	return json.Marshal(out)
}

// lastQuestion returns the index of the last message of the user that answers no
// call, -1 when there is none.
func lastQuestion(messages []llm.Message) int {
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role == llm.User && !slices.ContainsFunc(messages[i].Parts, isResult) {
			return i
		}
	}
	return -1
}

func isResult(p llm.Part) bool {
	_, ok := p.(llm.ToolResult)
	return ok
}

// addUser adds the results of a message first, each as a message of its own: they
// must follow the calls. A tool's message has text alone, so images of results
// follow as the user's.
func addUser(messages []any, m llm.Message) ([]any, error) {
	var rest []content
	for _, p := range m.Parts {
		result, ok := p.(llm.ToolResult)
		if !ok {
			continue
		}
		text, images, err := resultOf(result)
		if err != nil {
			return nil, err
		}
		messages = append(messages, message{Role: "tool", Content: text, ToolCallID: result.CallID})
		rest = append(rest, images...)
	}
	for _, p := range m.Parts {
		if isResult(p) {
			continue
		}
		c, err := contentOf(p)
		if err != nil {
			return nil, err
		}
		rest = append(rest, c)
	}
	if len(rest) == 0 {
		return messages, nil
	}
	return append(messages, message{Role: "user", Content: plain(rest)}), nil
}

// plain is a string where text is all there is: some servers take nothing else.
func plain(parts []content) any {
	var text []string
	for _, c := range parts {
		if c.Text == nil {
			return parts
		}
		text = append(text, *c.Text)
	}
	return strings.Join(text, "\n\n")
}

func resultOf(r llm.ToolResult) (text string, images []content, err error) {
	var words []string
	for _, p := range r.Parts {
		switch p := p.(type) {
		case llm.Text:
			words = append(words, p.Text)
		case llm.Image:
			c, err := contentOf(p)
			if err != nil {
				return "", nil, err
			}
			images = append(images, c)
		default:
			return "", nil, fmt.Errorf("a %T in the result of a tool", p)
		}
	}
	text = strings.Join(words, "\n")
	if r.Failed {
		text = "error: " + text
	}
	if len(images) == 0 {
		return text, nil, nil
	}
	if text == "" {
		text = "The result is in the next message."
	}
	label := "The images that " + r.Name + " (" + r.CallID + ") returned:"
	return text, append([]content{{Type: "text", Text: &label}}, images...), nil
}

func contentOf(p llm.Part) (content, error) {
	switch p := p.(type) {
	case llm.Text:
		return content{Type: "text", Text: &p.Text}, nil
	case llm.Image:
		u := p.URL
		if len(p.Data) > 0 {
			u = dataURL(p.MIME, p.Data)
		}
		return content{Type: "image_url", ImageURL: &imageURL{u}}, nil
	case llm.File:
		return content{Type: "file", File: &file{p.Name, dataURL(p.MIME, p.Data)}}, nil
	}
	return content{}, fmt.Errorf("a %T of the user", p)
}

func dataURL(mime string, data []byte) string {
	return "data:" + mime + ";base64," + base64.StdEncoding.EncodeToString(data)
}

// addAssistant adds what the model said. Providers that show what it thinks want
// that back while they wait for results, and not later; OpenRouter wants its details
// always.
func addAssistant(messages []any, m llm.Message, thisTurn bool) ([]any, error) {
	out := assistant{Role: "assistant"}
	var text []string
	for _, p := range m.Parts {
		switch p := p.(type) {
		case llm.Text:
			text = append(text, p.Text)
		case llm.ToolCall:
			out.ToolCalls = append(out.ToolCalls, toolCall{p.ID, "function", callFunction{p.Name, string(wire.Arguments(p))}})
		case llm.Reasoning:
			var t thought
			if wire.Own(dialect, p.Opaque, &t) && (thisTurn || t.Details != nil) {
				t.giveBack(&out, p.Text)
			}
		case llm.Image:
			// The dialect takes no pictures from the model's side.
			text = append(text, "[image]")
		default:
			return nil, fmt.Errorf("a %T of the model", p)
		}
	}
	if len(text) > 0 || len(out.ToolCalls) == 0 {
		joined := strings.Join(text, "")
		out.Content = &joined
	}
	if len(out.ToolCalls) == 0 && len(text) == 0 {
		return messages, nil // it broke off before it said anything
	}
	return append(messages, out), nil
}

// thought is how a provider told what the model thought.
type thought struct {
	Field   string          `json:"field,omitempty"`
	Details json.RawMessage `json:"details,omitempty"`
}

func (t thought) giveBack(out *assistant, text string) {
	switch {
	case len(t.Details) > 0:
		out.ReasoningDetails = t.Details
	case t.Field == "reasoning":
		out.Reasoning += text
	case t.Field == "reasoning_content":
		out.ReasoningContent += text
	}
}
