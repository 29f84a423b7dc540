package wire

import (
	"crypto/rand"
	"encoding/json"

	"github.com/cubbyhq/cubby/internal/llm"
)

// mark tells whose an opaque value is.
type mark struct {
	Dialect string          `json:"dialect"`
	Value   json.RawMessage `json:"value"`
}

// Opaque makes what a dialect wants back with a part of an answer.
func Opaque(dialect string, value any) json.RawMessage {
	v, err := json.Marshal(value)
	if err != nil {
		return nil // no dialect has such values
	}
	out, _ := json.Marshal(mark{dialect, v}) // as above
	return out
}

// Own reads what [Opaque] made. It reports false for nothing, and for what another
// dialect made.
func Own(dialect string, opaque json.RawMessage, into any) bool {
	var m mark
	return len(opaque) > 0 && json.Unmarshal(opaque, &m) == nil && m.Dialect == dialect && json.Unmarshal(m.Value, into) == nil
}

// Arguments returns the arguments of a call as an object, which is what providers
// take: what a model wrote that is none is the text of a single member.
func Arguments(c llm.ToolCall) json.RawMessage {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(c.Arguments), &object) == nil && object != nil {
		return json.RawMessage(c.Arguments)
	}
	if c.Arguments == "" {
		return json.RawMessage("{}")
	}
	out, _ := json.Marshal(map[string]string{"invalid_json": c.Arguments}) // strings always can be
	return out
}

// Schema returns the schema of a tool's arguments, that of no arguments when the
// tool has none.
func Schema(t llm.Tool) json.RawMessage {
	if len(t.Schema) == 0 {
		return json.RawMessage(`{"type":"object","properties":{}}`)
	}
	return t.Schema
}

// CallID makes an id for a call that its provider gave none.
func CallID() string { return "call_" + rand.Text() }
