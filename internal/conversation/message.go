package conversation

import (
	"encoding/json"

	"github.com/cubbyhq/cubby/internal/errs"
)

// The types of messages.
const (
	Human  = "human"
	AI     = "ai"
	System = "system"
	Tool   = "tool"
	Remove = "remove" // not a message: it takes the one with its id away
)

// RemoveAll is the id of a Remove that takes all messages away.
const RemoveAll = "__remove_all__"

// Message is one message in LangChain's form.
type Message struct {
	Type    string
	ID      string
	Name    string
	Content json.RawMessage // a string, or a list of blocks
	// Of an AI message.
	ToolCalls        []ToolCall
	InvalidToolCalls []InvalidToolCall
	Usage            *Usage
	// Of a Tool message. Artifact is what clients are shown and the model is not.
	ToolCallID string
	Status     string // StatusSuccess or StatusError
	Artifact   json.RawMessage

	AdditionalKwargs map[string]json.RawMessage
	ResponseMetadata map[string]json.RawMessage
}

// What became of a tool's call.
const (
	StatusSuccess = "success"
	StatusError   = "error"
)

// ToolCall is a call that the model wants made. Extras is the provider's own, which
// goes back to it.
type ToolCall struct {
	Name   string          `json:"name"`
	Args   json.RawMessage `json:"args"` // an object
	ID     string          `json:"id"`
	Type   string          `json:"type"` // "tool_call"
	Extras json.RawMessage `json:"extras,omitempty"`
}

// InvalidToolCall is one whose arguments are no JSON object.
type InvalidToolCall struct {
	Name  string `json:"name"`
	Args  string `json:"args"`
	ID    string `json:"id"`
	Error string `json:"error"`
	Type  string `json:"type"` // "invalid_tool_call"
}

// Usage is what a message took, in tokens. Cost is cubby's own, in US dollars.
type Usage struct {
	Input         int            `json:"input_tokens"`
	Output        int            `json:"output_tokens"`
	Total         int            `json:"total_tokens"`
	InputDetails  map[string]int `json:"input_token_details,omitempty"`  // cache_read, cache_creation
	OutputDetails map[string]int `json:"output_token_details,omitempty"` // reasoning
	Cost          *float64       `json:"cost_usd,omitempty"`
}

// MessageChunk is a piece of a message: an AI message that grows, or the whole of
// another one.
type MessageChunk struct {
	Message
	ToolCallChunks []ToolCallChunk
	Last           bool // nothing more of this message follows
}

// ToolCallChunk is a call that begins, or more of its arguments.
type ToolCallChunk struct {
	Index int    `json:"index"`
	ID    string `json:"id,omitempty"`
	Name  string `json:"name,omitempty"`
	Args  string `json:"args"`
	Type  string `json:"type"` // "tool_call_chunk"
}

// wire is a message as it travels, the fields of all types together.
type wire struct {
	Type             string                     `json:"type"`
	ID               *string                    `json:"id,omitempty"`
	Name             string                     `json:"name,omitempty"`
	Content          json.RawMessage            `json:"content"`
	AdditionalKwargs map[string]json.RawMessage `json:"additional_kwargs"`
	ResponseMetadata map[string]json.RawMessage `json:"response_metadata"`
	ToolCalls        *[]ToolCall                `json:"tool_calls,omitempty"`
	InvalidToolCalls *[]InvalidToolCall         `json:"invalid_tool_calls,omitempty"`
	ToolCallChunks   []ToolCallChunk            `json:"tool_call_chunks,omitempty"`
	Usage            *Usage                     `json:"usage_metadata,omitempty"`
	ToolCallID       string                     `json:"tool_call_id,omitempty"`
	Status           string                     `json:"status,omitempty"`
	Artifact         json.RawMessage            `json:"artifact,omitempty"`
	Example          *bool                      `json:"example,omitempty"`
	Last             bool                       `json:"chunk_last,omitempty"` // of journals alone
}

func (m Message) wire() wire {
	w := wire{
		Type: m.Type, ID: &m.ID, Name: m.Name, Content: m.Content,
		AdditionalKwargs: orEmpty(m.AdditionalKwargs), ResponseMetadata: orEmpty(m.ResponseMetadata),
		Usage: m.Usage, ToolCallID: m.ToolCallID, Status: m.Status, Artifact: m.Artifact,
	}
	if len(w.Content) == 0 {
		w.Content = json.RawMessage(`""`)
	}
	if m.Type == AI {
		calls, invalid := m.ToolCalls, m.InvalidToolCalls
		if calls == nil {
			calls = []ToolCall{}
		}
		if invalid == nil {
			invalid = []InvalidToolCall{}
		}
		w.ToolCalls, w.InvalidToolCalls = &calls, &invalid
	}
	return w
}

func orEmpty(m map[string]json.RawMessage) map[string]json.RawMessage {
	if m == nil {
		return map[string]json.RawMessage{}
	}
	return m
}

// MarshalJSON writes the flat form: {"type":"human","id":…,"content":…}.
func (m Message) MarshalJSON() ([]byte, error) { return json.Marshal(m.wire()) }

// UnmarshalJSON reads the flat form, also with a role in place of the type, in which
// user is human and assistant is ai.
func (m *Message) UnmarshalJSON(data []byte) error {
	var w struct {
		wire
		Role string `json:"role"`
	}
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*m = w.message()
	if m.Type == "" {
		m.Type = w.Role
	}
	name, ok := typeNames[m.Type]
	if !ok {
		return errs.E(errs.Invalid, "a message has the type %.40q", m.Type).Hint("types are human, ai, system, tool and remove")
	}
	m.Type = name
	return nil
}

var typeNames = map[string]string{
	Human: Human, "user": Human, "HumanMessage": Human, "HumanMessageChunk": Human,
	AI: AI, "assistant": AI, "AIMessage": AI, "AIMessageChunk": AI,
	System: System, "developer": System, "SystemMessage": System,
	Tool: Tool, "ToolMessage": Tool, "function": Tool,
	Remove: Remove, "RemoveMessage": Remove,
}

func (w wire) message() Message {
	m := Message{
		Type: w.Type, Name: w.Name, Content: w.Content, Usage: w.Usage, ToolCallID: w.ToolCallID, Status: w.Status, Artifact: w.Artifact,
	}
	if w.ID != nil {
		m.ID = *w.ID
	}
	if len(w.AdditionalKwargs) > 0 {
		m.AdditionalKwargs = w.AdditionalKwargs
	}
	if len(w.ResponseMetadata) > 0 {
		m.ResponseMetadata = w.ResponseMetadata
	}
	if w.ToolCalls != nil && len(*w.ToolCalls) > 0 {
		m.ToolCalls = *w.ToolCalls
	}
	if w.InvalidToolCalls != nil && len(*w.InvalidToolCalls) > 0 {
		m.InvalidToolCalls = *w.InvalidToolCalls
	}
	return m
}

// MarshalJSON writes the flat form with tool_call_chunks, and how it goes on.
func (c MessageChunk) MarshalJSON() ([]byte, error) {
	w := c.wire()
	w.ToolCallChunks, w.Last = c.ToolCallChunks, c.Last
	return json.Marshal(w)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *MessageChunk) UnmarshalJSON(data []byte) error {
	var w wire
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*c = MessageChunk{w.message(), w.ToolCallChunks, w.Last}
	return nil
}
