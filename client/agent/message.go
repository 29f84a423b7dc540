package agent

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// The types of messages.
const (
	Human  = "human"
	AI     = "ai"
	System = "system"
	Tool   = "tool"
)

// Message is one message of a thread, in LangChain's form.
type Message struct {
	Type      string          `json:"type"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Content   json.RawMessage `json:"content"` // a string, or a list of blocks
	ToolCalls []ToolCall      `json:"tool_calls,omitempty"`
	Usage     *Usage          `json:"usage_metadata,omitempty"`
	// Of the result of a tool's call: whose, "success" or "error", and what clients are
	// shown beside the content.
	ToolCallID string          `json:"tool_call_id,omitempty"`
	Status     string          `json:"status,omitempty"`
	Artifact   json.RawMessage `json:"artifact,omitempty"`
}

// ToolCall is a call of a tool that the model asks for.
type ToolCall struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"` // an object
}

// Usage is what a message took, in tokens. Cost is in US dollars, nil when unknown.
type Usage struct {
	Input  int      `json:"input_tokens"`
	Output int      `json:"output_tokens"`
	Total  int      `json:"total_tokens"`
	Cost   *float64 `json:"cost_usd,omitempty"`
}

// block is a piece of content.
type block struct {
	Type      string `json:"type"`
	Text      string `json:"text,omitempty"`
	Reasoning string `json:"reasoning,omitempty"`
	MIMEType  string `json:"mimeType,omitempty"`
	Data      string `json:"data,omitempty"`
}

func blocks(content json.RawMessage) []block {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []block{{Type: "text", Text: text}}
	}
	var list []json.RawMessage
	_ = json.Unmarshal(content, &list) // what is none has no text
	out := make([]block, len(list))
	for i, raw := range list {
		_ = json.Unmarshal(raw, &out[i]) // likewise
	}
	return out
}

// Text is the text of the content.
func (m Message) Text() string {
	var all strings.Builder
	for _, b := range blocks(m.Content) {
		if b.Type == "text" {
			all.WriteString(b.Text)
		}
	}
	return all.String()
}

// Reasoning is what the model thought aloud.
func (m Message) Reasoning() string {
	var all strings.Builder
	for _, b := range blocks(m.Content) {
		if b.Type == "reasoning" {
			all.WriteString(b.Reasoning)
		}
	}
	return all.String()
}

// Image is an image for the model.
type Image struct {
	MIMEType string // image/png, …
	Data     []byte
}

// HumanMessage is a message of the user.
func HumanMessage(text string, images ...Image) Message {
	var content any = text
	if len(images) > 0 {
		list := []block{}
		if text != "" {
			list = append(list, block{Type: "text", Text: text})
		}
		for _, i := range images {
			list = append(list, block{Type: "image", MIMEType: i.MIMEType, Data: base64.StdEncoding.EncodeToString(i.Data)})
		}
		content = list
	}
	raw, _ := json.Marshal(content) // it holds nothing that cannot be written
	return Message{Type: Human, Content: raw}
}

// Chunk is a piece of a message: pieces of one id are one message, whose texts follow
// each other. The result of a tool is one piece.
type Chunk struct {
	Message

	ToolCallChunks []ToolCallChunk `json:"tool_call_chunks,omitempty"`
	// Node is the step of the agent that makes the message: "agent" or "tools".
	Node string `json:"-"`
}

// ToolCallChunk is a call that begins, or more of its arguments: those of one index are
// one call.
type ToolCallChunk struct {
	Index int    `json:"index"`
	ID    string `json:"id,omitempty"`
	Name  string `json:"name,omitempty"`
	Args  string `json:"args"`
}
