// Package loop is one run of the agent: a model is asked, the tools that it calls are
// run, and it is asked again with their results, until it has said all, a limit is
// reached, or somebody has to decide. It knows no store, no sandbox and no provider:
// it is given a model, tools and where to tell what happens.
package loop

import (
	"context"
	"encoding/json"

	"github.com/cubbyhq/cubby/internal/llm"
)

// Tools is what the model of one thread may call. Its methods may be called from any
// goroutine.
type Tools interface {
	// List is the same for the whole of a run.
	List() []llm.Tool
	// Call runs a tool. It does not fail: what went wrong is in the result, in words
	// for the model. When ctx ends, what the tool began is ended too.
	Call(ctx context.Context, c Call) Result
}

// Call is one call of a tool.
type Call struct {
	ID, Name  string
	Arguments json.RawMessage // an object
	// Output, when not nil, is told what the tool prints while it does; stream is
	// "stdout" or "stderr", session the sandbox.
	Output func(session, stream, text string)
}

// Result is what became of a call.
type Result struct {
	// Content is what the model reads, and the content of the tool's message.
	Content string
	// Artifact is what clients are shown beside it; null is nothing.
	Artifact json.RawMessage
	// Images are for models that see.
	Images []llm.Image
	Failed bool
}
