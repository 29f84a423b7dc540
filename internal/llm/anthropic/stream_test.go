package anthropic_test

import (
	"flag"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/llm/anthropic"
	"github.com/cubbyhq/cubby/internal/llm/llmtest"
	"github.com/cubbyhq/cubby/internal/llm/wire"
)

var update = flag.Bool("update", false, "rewrite golden files")

func open(c wire.Config) llm.Provider { return anthropic.New(c) }

func FuzzStream(f *testing.F) { llmtest.Fuzz(f, open, llmtest.Anthropic{}) }

// TestRequest compares whole requests with golden files: each generation of models
// is told in its own way how much to think.
func TestRequest(t *testing.T) {
	for _, model := range []string{"claude-sonnet-4-5-20250929", "claude-opus-4-7", "claude-3-5-haiku-latest"} {
		r := llmtest.Conversation("anthropic", `{"signature":"signed"}`)
		r.Model = model
		llmtest.Golden(t, "testdata/"+model+".json", *update, open, r)
	}
	// What the model thought was not Anthropic's: it goes on without thinking.
	foreign := llmtest.Conversation("openai", `{}`)
	foreign.Model = "claude-sonnet-4-5"
	foreign.Messages = foreign.Messages[:len(foreign.Messages)-1]
	llmtest.Golden(t, "testdata/foreign.json", *update, open, foreign)
	bare := llm.Request{Model: "claude-sonnet-4-5", Effort: llm.EffortHigh, Messages: []llm.Message{
		{Role: llm.User, Parts: []llm.Part{llm.Text{Text: " \n"}, llm.Text{Text: "hi"}}},
		{Role: llm.Assistant, Parts: []llm.Part{llm.Reasoning{Text: "broke off"}}},
		{Role: llm.User, Parts: []llm.Part{llm.Text{Text: "again"}}},
	}}
	llmtest.Golden(t, "testdata/bare.json", *update, open, bare)
}

func TestThoughts(t *testing.T) {
	stream := `data: {"type":"message_start","message":{"model":"m","usage":{"input_tokens":5,"cache_read_input_tokens":100,"cache_creation_input_tokens":20,"output_tokens":1}}}

data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"ab"}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"cd"}}

data: {"type":"content_block_stop","index":0}

data: {"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"zz"}}

data: {"type":"content_block_stop","index":1}

data: {"type":"content_block_start","index":2,"content_block":{"type":"server_tool_use","id":"s","name":"web_search","input":{}}}

data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{}"}}

data: {"type":"content_block_stop","index":2}

data: {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"t","name":"f","input":{"x":1}}}

data: {"type":"content_block_stop","index":3}

data: {"type":"a_new_event","index":9}

data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":30,"output_tokens_details":{"thinking_tokens":12}}}

data: {"type":"message_stop"}

`
	_, a, err := llmtest.Feed(t, open, []byte(stream))
	if err != nil {
		t.Fatal(err)
	}
	want := llm.Answer{
		Parts: []llm.Part{
			llm.Reasoning{Text: "hm", Opaque: []byte(`{"dialect":"anthropic","value":{"signature":"abcd"}}`)},
			llm.Reasoning{Opaque: []byte(`{"dialect":"anthropic","value":{"redacted":"zz"}}`)},
			llm.ToolCall{ID: "t", Name: "f", Arguments: `{"x":1}`},
		},
		Usage: llm.Usage{Input: 125, Output: 30, CacheRead: 100, CacheWrite: 20, Reasoning: 12},
		Stop:  llm.StopTools, Model: "m",
	}
	if d := cmp.Diff(want.Parts, a.Parts); d != "" || a.Stop != want.Stop || a.Usage != want.Usage {
		t.Errorf("%q, %+v, parts (-want +got):\n%s", a.Stop, a.Usage, d)
	}
}
