package wire

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"

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

// Turns joins neighbours of one role, and puts the results of tools before what else
// the user says: they answer the message before, and providers want them next to it.
func Turns(messages []llm.Message) ([]llm.Message, error) {
	var turns []llm.Message
	for _, m := range messages {
		if m.Role != llm.User && m.Role != llm.Assistant {
			return nil, fmt.Errorf("a message of %q", m.Role)
		}
		if n := len(turns); n > 0 && turns[n-1].Role == m.Role {
			turns[n-1].Parts = append(slices.Clip(turns[n-1].Parts), m.Parts...)
			continue
		}
		turns = append(turns, m)
	}
	for i, m := range turns {
		if m.Role == llm.User {
			turns[i].Parts = slices.Clone(m.Parts)
			slices.SortStableFunc(turns[i].Parts, func(a, b llm.Part) int { return rank(a) - rank(b) })
		}
	}
	return turns, nil
}

func rank(p llm.Part) int {
	if _, result := p.(llm.ToolResult); result {
		return 0
	}
	return 1
}
