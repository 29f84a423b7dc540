// Package llm is what cubby's agent asks a language model, and what the model
// answers, whoever provides it. A dialect (internal/llm/openai, anthropic, gemini)
// turns a [Request] into what a provider's API takes, and its stream into [Event]s.
//
// The package has no HTTP and keeps no key. It does not hide what providers cannot
// do: a [Request] with an image for a model without eyes fails with [Unsupported],
// and nothing is left out silently.
package llm

import (
	"context"
	"encoding/json"
	"iter"
	"time"
)

// Model answers requests. Its methods may be called from any goroutine.
type Model interface {
	// Stream asks the model. The sequence ends with a [Done], or with an error,
	// which is an [*Error] or the context's. What fails before the first event of
	// the answer may have been tried again, as [Retrying] says; an answer that
	// broke off is never asked for again.
	Stream(ctx context.Context, r Request) iter.Seq2[Event, error]
}

// Provider is a way to models: an API at a base URL, with a key.
type Provider interface {
	Model
	// Models asks which models there are.
	Models(ctx context.Context) ([]Info, error)
}

// Info is a model as its provider lists it. What a provider does not tell is zero.
type Info struct {
	ID      string // as requests name it
	Name    string // for people
	Context int    // in tokens
}

// Request is one turn of a model.
type Request struct {
	Model    string // without the provider's name
	System   string
	Messages []Message
	Tools    []Tool
	// MaxTokens bounds the answer; 0 leaves it to the provider, or to the dialect
	// where a provider demands a bound.
	MaxTokens   int
	Effort      Effort
	Temperature *float64 // nil: the provider's
}

// Effort is how much a model is to think before it answers; "" leaves it to the
// provider.
type Effort string

const (
	EffortNone   Effort = "none"
	EffortLow    Effort = "low"
	EffortMedium Effort = "medium"
	EffortHigh   Effort = "high"
)

// Tool is what the model may call.
type Tool struct {
	Name, Description string
	Schema            json.RawMessage // JSON Schema of its arguments, an object
}

// Role is whose message it is. The results of tools are the user's.
type Role string

const (
	User      Role = "user"
	Assistant Role = "assistant"
)

// Message is what one side said. The messages of a request begin with one of the
// user; neighbours of one role may be joined by a dialect.
type Message struct {
	Role  Role
	Parts []Part
}

// Part is a piece of a message: Text, Image, File, Reasoning, ToolCall or ToolResult.
type Part interface{ part() }

// Text is words.
type Text struct{ Text string }

// Image is a picture: its bytes, or where the provider finds it.
type Image struct {
	MIME string
	Data []byte
	URL  string // when Data is empty
}

// File is a document, as a PDF.
type File struct {
	MIME, Name string
	Data       []byte
}

// Reasoning is what a model thought. Opaque is the provider's own and goes back to it
// untouched, as a signature; a dialect leaves out what another one made.
type Reasoning struct {
	Text   string
	Opaque json.RawMessage
}

// ToolCall is a model's wish that a tool be run. Arguments are what it wrote: JSON
// if all went well, "" for none.
type ToolCall struct {
	ID, Name  string
	Arguments string
	Opaque    json.RawMessage // as of Reasoning
}

// ToolResult is what became of a call: Texts and Images.
type ToolResult struct {
	CallID, Name string // Name is the tool's; Gemini asks for it
	Parts        []Part
	Failed       bool
}

func (Text) part()       {}
func (Image) part()      {}
func (File) part()       {}
func (Reasoning) part()  {}
func (ToolCall) part()   {}
func (ToolResult) part() {}

// Event is a piece of an answer: one of the types below.
type Event interface{ event() }

// TextDelta is more of the text.
type TextDelta struct{ Text string }

// ReasoningDelta is more of what the model thinks; a part with an index of its own
// is another thought. Opaque comes with the end of one.
type ReasoningDelta struct {
	Index  int
	Text   string
	Opaque json.RawMessage
}

// ToolCallDelta is a call that begins, when it has a Name, or more of its arguments.
// Index tells the calls of an answer apart, from 0; an ID is always there with the
// Name, of the dialect's own making where the provider gives none.
type ToolCallDelta struct {
	Index     int
	ID, Name  string
	Arguments string
	Opaque    json.RawMessage
}

// ImageOut is a picture that the model made.
type ImageOut struct{ Image }

// Usage is what the request took so far; the last one counts.
type Usage struct {
	Input      int // tokens of the request, with those of the cache
	Output     int // tokens of the answer, with those of the reasoning
	CacheRead  int // of Input
	CacheWrite int // of Input
	Reasoning  int // of Output
	// Cost is in US dollars, nil where neither provider nor price list tells it.
	Cost *float64
}

// Retrying says that the provider could not answer now and is asked again.
type Retrying struct {
	After time.Duration
	Err   *Error
}

// Done is the end of an answer.
type Done struct {
	Stop  Stop
	Model string // that answered, as the provider names it; "" when it did not say
}

func (TextDelta) event()      {}
func (ReasoningDelta) event() {}
func (ToolCallDelta) event()  {}
func (ImageOut) event()       {}
func (Usage) event()          {}
func (Retrying) event()       {}
func (Done) event()           {}

// Stop is why a model stopped.
type Stop string

const (
	StopEnd     Stop = "stop"       // it had said all
	StopTools   Stop = "tool_calls" // it waits for results
	StopLength  Stop = "length"     // MaxTokens, or the end of its context
	StopRefused Stop = "refusal"    // it, or a filter, would not answer
)

// Fault is what kind of trouble a provider has.
type Fault string

const (
	Denied      Fault = "denied"           // the key is missing, wrong, or may not
	NoModel     Fault = "no_model"         // the provider does not know the model
	Invalid     Fault = "invalid"          // it does not take the request
	TooLong     Fault = "context_too_long" // the messages do not fit into the context
	Unsupported Fault = "unsupported"      // the model cannot do that, as see images
	Limited     Fault = "rate_limited"     // too much was asked of it
	Quota       Fault = "quota"            // the account's money or quota is used up
	Unavailable Fault = "unavailable"      // it does not answer, or with 5xx
	Broken      Fault = "broken_stream"    // the answer broke off, or is none of the dialect
)

// Error is a provider's fault. Message is the provider's own text, bounded and
// without the key; it is for the user of the agent, who chose the provider.
type Error struct {
	Fault      Fault
	Provider   string
	Status     int // of HTTP; 0: none
	Message    string
	RetryAfter time.Duration // as the provider asked; 0: it did not
	Cause      error         // for logs
}

func (e *Error) Error() string {
	text := e.Provider + ": " + e.Message
	if e.Message == "" {
		text = e.Provider + ": " + string(e.Fault)
	}
	return text
}

func (e *Error) Unwrap() error { return e.Cause }
