package openai_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/llm/llmtest"
	"github.com/cubbyhq/cubby/internal/llm/openai"
	"github.com/cubbyhq/cubby/internal/llm/wire"
)

func open(c wire.Config) llm.Provider { return openai.New(openai.Config{Config: c}) }

func FuzzStream(f *testing.F) { llmtest.Fuzz(f, open, llmtest.OpenAI{}) }

// chunk is one with a choice.
func chunk(delta, finish string) string {
	if finish != "" {
		finish = `,"finish_reason":"` + finish + `"`
	}
	return `data: {"choices":[{"index":0,"delta":{` + delta + `}` + finish + "}]}\n\n"
}

// TestServers has what servers of the dialect do differently from OpenAI's.
func TestServers(t *testing.T) {
	call := func(id, name, arguments string) llm.ToolCall {
		return llm.ToolCall{ID: id, Name: name, Arguments: arguments}
	}
	for name, tt := range map[string]struct {
		stream string
		parts  []llm.Part
		stop   llm.Stop
	}{
		"no mark of the end": {chunk(`"content":"Hi"`, "") + chunk("", "stop"), []llm.Part{llm.Text{Text: "Hi"}}, llm.StopEnd},
		"a whole call at once": {
			chunk(`"content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]`, "stop"),
			[]llm.Part{call("a", "f", `{"x":1}`)}, llm.StopTools,
		},
		"calls without an index": {
			chunk(`"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","function":{"name":"g","arguments":"{}"}}]`, "tool_calls"),
			[]llm.Part{call("a", "f", "{}"), call("b", "g", "{}")}, llm.StopTools,
		},
		"pieces without an index": {
			chunk(`"tool_calls":[{"id":"a","function":{"name":"f","arguments":""}}]`, "") + chunk(`"tool_calls":[{"function":{"arguments":"{\"x\""}}]`, "") +
				chunk(`"tool_calls":[{"function":{"arguments":":1}"}}]`, "tool_calls"),
			[]llm.Part{call("a", "f", `{"x":1}`)}, llm.StopTools,
		},
		"all calls of one index": {
			chunk(`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]`, "") + chunk(`"tool_calls":[{"index":0,"id":"b","function":{"name":"f","arguments":"{}"}}]`, "tool_calls"),
			[]llm.Part{call("a", "f", "{}"), call("b", "f", "{}")}, llm.StopTools,
		},
		"the id again in every piece": {
			chunk(`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}]`, "") + chunk(`"tool_calls":[{"index":0,"id":"a","function":{"arguments":":1}"}}]`, "tool_calls"),
			[]llm.Part{call("a", "f", `{"x":1}`)}, llm.StopTools,
		},
		"the name after the arguments": {
			chunk(`"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{\"x\""}}]`, "") + chunk(`"tool_calls":[{"index":0,"function":{"name":"f","arguments":":1}"}}]`, "tool_calls"),
			[]llm.Part{call("a", "f", `{"x":1}`)}, llm.StopTools,
		},
		"calls between each other": {
			chunk(`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}},{"index":1,"id":"b","function":{"name":"g","arguments":""}}]`, "") +
				chunk(`"tool_calls":[{"index":1,"function":{"arguments":"{\"y\":2}"}},{"index":0,"function":{"arguments":"{\"x\":1}"}}]`, "tool_calls"),
			[]llm.Part{call("a", "f", `{"x":1}`), call("b", "g", `{"y":2}`)}, llm.StopTools,
		},
		"arguments as an object": {
			chunk(`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":{"x":1}}}]`, "tool_calls"),
			[]llm.Part{call("a", "f", `{"x":1}`)}, llm.StopTools,
		},
		"reasoning": {
			chunk(`"reasoning":"hm, "`, "") + chunk(`"reasoning":"well"`, "") + chunk(`"content":"Hi"`, "") + chunk("", "stop"),
			[]llm.Part{llm.Reasoning{Text: "hm, well"}, llm.Text{Text: "Hi"}}, llm.StopEnd,
		},
		"both names of reasoning": {
			chunk(`"reasoning":"hm","reasoning_content":"hm"`, "") + chunk(`"content":"Hi"`, "stop"),
			[]llm.Part{llm.Reasoning{Text: "hm"}, llm.Text{Text: "Hi"}}, llm.StopEnd,
		},
		"content in parts": {
			chunk(`"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]`, "") + chunk(`"content":[{"type":"text","text":"Hi"}]`, "stop"),
			[]llm.Part{llm.Reasoning{Text: "hm"}, llm.Text{Text: "Hi"}}, llm.StopEnd,
		},
		"a refusal":           {chunk(`"refusal":"I can"`, "") + chunk(`"refusal":"not."`, "stop"), []llm.Part{llm.Text{Text: "I cannot."}}, llm.StopRefused},
		"a filter":            {chunk(`"content":"I"`, "") + chunk("", "content_filter"), []llm.Part{llm.Text{Text: "I"}}, llm.StopRefused},
		"nothing":             {chunk("", "stop"), nil, llm.StopEnd},
		"tools that are none": {chunk(`"content":"Hi","tool_calls":[]`, "tool_calls"), []llm.Part{llm.Text{Text: "Hi"}}, llm.StopEnd},
		"a second choice":     {`data: {"choices":[{"index":1,"delta":{"content":"other"}}]}` + "\n\n" + chunk(`"content":"Hi"`, "stop"), []llm.Part{llm.Text{Text: "Hi"}}, llm.StopEnd},
		"null everywhere":     {`data: {"choices":[{"index":0,"delta":{"content":null,"tool_calls":null,"reasoning":null},"finish_reason":null}],"usage":null,"error":null}` + "\n\n" + chunk("", "stop"), nil, llm.StopEnd},
	} {
		t.Run(name, func(t *testing.T) {
			_, a, err := llmtest.Feed(t, open, []byte(tt.stream))
			if err != nil {
				t.Fatal(err)
			}
			for i, p := range a.Parts {
				if r, ok := p.(llm.Reasoning); ok {
					a.Parts[i] = llm.Reasoning{Text: r.Text}
				}
			}
			if d := cmp.Diff(tt.parts, a.Parts); d != "" || a.Stop != tt.stop {
				t.Errorf("stopped with %q, want %q; parts (-want +got):\n%s", a.Stop, tt.stop, d)
			}
		})
	}
	t.Run("no id", func(t *testing.T) {
		_, a, err := llmtest.Feed(t, open, []byte(chunk(`"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}},{"index":1,"function":{"name":"f","arguments":"{}"}}]`, "tool_calls")))
		if err != nil || len(a.Calls()) != 2 || a.Calls()[0].ID == "" || a.Calls()[0].ID == a.Calls()[1].ID {
			t.Errorf("the calls: %v, %v", a.Calls(), err)
		}
	})
	for name, stream := range map[string]string{
		"a call without a name": chunk(`"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{}"}}]`, "tool_calls"),
		"an end by mistake":     chunk(`"content":"Hi"`, "error"),
		"an end without reason": chunk(`"content":"Hi"`, "") + "data: [DONE]\n\n",
	} {
		if _, a, err := llmtest.Feed(t, open, []byte(stream)); err == nil {
			t.Errorf("%s: %v", name, a.Parts)
		}
	}
}

func TestUsage(t *testing.T) {
	cost := 0.0125
	for text, want := range map[string]llm.Usage{
		`"usage":{"prompt_tokens":10,"completion_tokens":5,"prompt_cache_hit_tokens":4}`:                                                      {Input: 10, Output: 5, CacheRead: 4},
		`"usage":{"prompt_tokens":10,"completion_tokens":5,"cost":0.0125,"prompt_tokens_details":{"cached_tokens":3,"cache_write_tokens":2}}`: {Input: 10, Output: 5, CacheRead: 3, CacheWrite: 2, Cost: &cost},
		`"x_groq":{"id":"r","usage":{"prompt_tokens":10,"completion_tokens":5,"completion_tokens_details":{"reasoning_tokens":4}}}`:           {Input: 10, Output: 5, Reasoning: 4},
		`"usage":{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":null}`:                                                     {Input: 10, Output: 5},
	} {
		stream := chunk(`"content":"Hi"`, "stop") + `data: {"choices":[],` + text + "}\n\ndata: [DONE]\n\n"
		_, a, err := llmtest.Feed(t, open, []byte(stream))
		if d := cmp.Diff(want, a.Usage); d != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", text, err, d)
		}
	}
}
