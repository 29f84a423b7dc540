package agent

import (
	"encoding/json"
	"strings"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/client/internal/sse"
)

// Event is what a run tells. At most one of the pointers and lists is set, by its name;
// none for an event that this version does not know.
type Event struct {
	ID   string // where a stream goes on after this event
	Name string // as it travels: metadata, messages, values, updates, custom, error, end, …
	Data json.RawMessage

	Begun  *Begun  // the first event
	Chunk  *Chunk  // a piece of a message
	Values *Values // the whole state, after a step
	// Updates is what a step has added to the state, by its name.
	Updates map[string]Values
	Notice  *Notice // for people who watch
	// Interrupts are questions: the run ends with them, and another one with
	// [RunRequest.Resume] goes on.
	Interrupts []Interrupt
	Error      *RunError // why the run failed
	End        *End      // the last event
}

// Begun names the run.
type Begun struct {
	RunID    string `json:"run_id"`
	ThreadID string `json:"thread_id"`
	Attempt  int    `json:"attempt"`
}

// End is how the run ended.
type End struct {
	Status RunStatus `json:"status"`
}

// RunError is why a run failed: a type and a text for people.
type RunError struct {
	Type    string `json:"error"`
	Message string `json:"message"`
}

// Error gives the text.
func (e *RunError) Error() string {
	if e.Message == "" {
		return e.Type
	}
	return e.Message
}

// Notice is something for people who watch a run, of which its thread keeps nothing.
type Notice struct {
	Type string `json:"type"`
	// ToolCallID, Stream ("stdout" or "stderr"), Text and SessionID, the sandbox, are
	// of [NoticeOutput].
	ToolCallID string `json:"tool_call_id,omitempty"`
	Stream     string `json:"stream,omitempty"`
	Text       string `json:"text,omitempty"`
	SessionID  string `json:"session_id,omitempty"`
	Message    string `json:"message,omitempty"`
	// RetryAfterMS is of [NoticeRetry].
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
	// Messages is of [NoticeFolded]: how many the model is no more shown.
	Messages int `json:"messages,omitempty"`
	// Tokens and Cost, in US dollars, are of [NoticeUsage]: of the run so far.
	Tokens int      `json:"tokens,omitempty"`
	Cost   *float64 `json:"cost_usd,omitempty"`
}

// The types of notices.
const (
	NoticeOutput = "tool_output"
	NoticeRetry  = "retry" // the model is asked again
	NoticeFolded = "context_folded"
	NoticeUsage  = "usage"
)

// eventOf reads an event.
func eventOf(ev sse.Event) (Event, error) {
	e := Event{ID: ev.ID, Name: ev.Name, Data: ev.Data}
	var err error
	switch ev.Name {
	case "metadata":
		e.Begun, err = read[Begun](ev.Data)
	case "messages":
		e.Chunk, err = readChunk(ev.Data)
	case "values":
		if e.Interrupts, err = readInterrupts(ev.Data); err == nil && e.Interrupts == nil {
			e.Values, err = read[Values](ev.Data)
		}
	case "updates":
		if e.Interrupts, err = readInterrupts(ev.Data); err == nil && e.Interrupts == nil {
			err = json.Unmarshal(ev.Data, &e.Updates)
		}
	case "custom":
		// Others than cubby's notices are anything at all.
		if n, nerr := read[Notice](ev.Data); nerr == nil && n.Type != "" {
			e.Notice = n
		}
	case "error":
		e.Error, err = read[RunError](ev.Data)
	case "end":
		e.End, err = read[End](ev.Data)
	default:
		if !json.Valid(ev.Data) {
			err = &json.SyntaxError{}
		}
	}
	if err != nil {
		return Event{}, &client.Error{Code: client.Internal, Message: "the stream has an event that cannot be read: " + shorten(ev.Name)}
	}
	return e, nil
}

func read[T any](data []byte) (*T, error) {
	v := new(T)
	return v, json.Unmarshal(data, v)
}

// readChunk reads a piece of a message with what is said about it.
func readChunk(data []byte) (*Chunk, error) {
	var pair [2]json.RawMessage
	if err := json.Unmarshal(data, &pair); err != nil {
		return nil, err
	}
	c, err := read[Chunk](pair[0])
	if err != nil {
		return nil, err
	}
	var about struct {
		Node string `json:"langgraph_node"`
	}
	_ = json.Unmarshal(pair[1], &about) // nothing depends on it
	c.Node = about.Node
	if name, ok := strings.CutSuffix(c.Type, "MessageChunk"); ok {
		c.Type = strings.ToLower(name)
	}
	return c, nil
}

func readInterrupts(data []byte) ([]Interrupt, error) {
	var w struct {
		Interrupts []Interrupt `json:"__interrupt__"`
	}
	err := json.Unmarshal(data, &w)
	return w.Interrupts, err
}

func shorten(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}
