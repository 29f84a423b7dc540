package anthropic

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/llm/wire"
)

type request struct {
	Model        string        `json:"model"`
	MaxTokens    int           `json:"max_tokens"`
	System       []*block      `json:"system,omitempty"`
	Messages     []message     `json:"messages"`
	Tools        []tool        `json:"tools,omitempty"`
	Temperature  *float64      `json:"temperature,omitempty"`
	Thinking     *thinking     `json:"thinking,omitempty"`
	OutputConfig *outputConfig `json:"output_config,omitempty"`
	Stream       bool          `json:"stream"`
}

type outputConfig struct {
	Effort llm.Effort `json:"effort"`
}

type message struct {
	Role    llm.Role `json:"role"`
	Content []*block `json:"content"`
}

type tool struct {
	Name         string          `json:"name"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"input_schema"`
	CacheControl *cacheControl   `json:"cache_control,omitempty"`
}

type cacheControl struct {
	Type string `json:"type"`
}

// block is a piece of content of any type.
type block struct {
	Type         string          `json:"type"`
	Text         string          `json:"text,omitempty"`
	Source       *source         `json:"source,omitempty"`
	Title        string          `json:"title,omitempty"`
	Thinking     *string         `json:"thinking,omitempty"`
	Signature    string          `json:"signature,omitempty"`
	Data         string          `json:"data,omitempty"`
	ID           string          `json:"id,omitempty"`
	Name         string          `json:"name,omitempty"`
	Input        json.RawMessage `json:"input,omitempty"`
	ToolUseID    string          `json:"tool_use_id,omitempty"`
	Content      []*block        `json:"content,omitempty"`
	IsError      bool            `json:"is_error,omitempty"`
	CacheControl *cacheControl   `json:"cache_control,omitempty"`
}

type source struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
}

// thought is what Anthropic wants back of one.
type thought struct {
	Signature string `json:"signature,omitempty"`
	Redacted  string `json:"redacted,omitempty"`
}

func ephemeral() *cacheControl { return &cacheControl{"ephemeral"} }

func encode(r llm.Request) ([]byte, error) {
	out := request{Model: r.Model, Temperature: r.Temperature, Stream: true}
	if strings.TrimSpace(r.System) != "" {
		out.System = []*block{{Type: "text", Text: r.System, CacheControl: ephemeral()}}
	}
	for _, t := range r.Tools {
		out.Tools = append(out.Tools, tool{Name: t.Name, Description: t.Description, InputSchema: wire.Schema(t)})
	}
	if n := len(out.Tools); n > 0 {
		out.Tools[n-1].CacheControl = ephemeral()
	}
	turns, err := wire.Turns(r.Messages)
	if err != nil {
		return nil, err
	}
	for _, m := range turns {
		blocks, err := blocksOf(m)
		if err != nil {
			return nil, err
		}
		switch n := len(out.Messages); {
		case len(blocks) == 0:
		case n > 0 && out.Messages[n-1].Role == m.Role: // what was between them was left out
			out.Messages[n-1].Content = append(out.Messages[n-1].Content, blocks...)
		default:
			out.Messages = append(out.Messages, message{m.Role, blocks})
		}
	}
	if last := out.lastOfUser(); last != nil {
		last.CacheControl = ephemeral()
	}
	out.think(r)
	return json.Marshal(out)
}

// lastOfUser is the last block that the user said: what is before it is in the cache
// when the next request comes.
func (out *request) lastOfUser() *block {
	for i := len(out.Messages) - 1; i >= 0; i-- {
		if m := out.Messages[i]; m.Role == llm.User {
			return m.Content[len(m.Content)-1]
		}
	}
	return nil
}

func blocksOf(m llm.Message) ([]*block, error) {
	var blocks []*block
	for _, p := range m.Parts {
		b, err := blockOf(p)
		if err != nil {
			return nil, err
		}
		if b != nil {
			blocks = append(blocks, b)
		}
	}
	return blocks, nil
}

// blockOf returns nil for what Anthropic does not take: text of nothing but spaces,
// and what other providers' models thought.
func blockOf(p llm.Part) (*block, error) {
	switch p := p.(type) {
	case llm.Text:
		if strings.TrimSpace(p.Text) == "" {
			return nil, nil
		}
		return &block{Type: "text", Text: p.Text}, nil
	case llm.Image:
		return &block{Type: "image", Source: sourceOf(p.MIME, p.Data, p.URL)}, nil
	case llm.File:
		b := &block{Type: "document", Title: p.Name, Source: sourceOf(p.MIME, p.Data, "")}
		if strings.HasPrefix(p.MIME, "text/") {
			b.Source = &source{Type: "text", MediaType: "text/plain", Data: string(p.Data)}
		}
		return b, nil
	case llm.Reasoning:
		var t thought
		switch {
		case !wire.Own(dialect, p.Opaque, &t):
			return nil, nil
		case t.Redacted != "":
			return &block{Type: "redacted_thinking", Data: t.Redacted}, nil
		case t.Signature == "":
			return nil, nil // it broke off
		}
		return &block{Type: "thinking", Thinking: &p.Text, Signature: t.Signature}, nil
	case llm.ToolCall:
		return &block{Type: "tool_use", ID: callID(p.ID), Name: p.Name, Input: wire.Arguments(p)}, nil
	case llm.ToolResult:
		content, err := blocksOf(llm.Message{Parts: p.Parts})
		if err != nil {
			return nil, err
		}
		for _, c := range content {
			if c.Type != "text" && c.Type != "image" {
				return nil, fmt.Errorf("a %s in the result of a tool", c.Type)
			}
		}
		return &block{Type: "tool_result", ToolUseID: callID(p.CallID), Content: content, IsError: p.Failed}, nil
	}
	return nil, fmt.Errorf("a %T", p)
}

func sourceOf(mime string, data []byte, url string) *source {
	if len(data) == 0 && url != "" {
		return &source{Type: "url", URL: url}
	}
	return &source{Type: "base64", MediaType: mime, Data: base64.StdEncoding.EncodeToString(data)}
}

// callID takes out of an id, which another provider may have made, what Anthropic's
// do not have.
func callID(id string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, id)
}
