package openai_test

import (
	"flag"
	"testing"

	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/llm/llmtest"
	"github.com/cubbyhq/cubby/internal/llm/openai"
	"github.com/cubbyhq/cubby/internal/llm/wire"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestRequest compares whole requests with golden files.
func TestRequest(t *testing.T) {
	for name, quirks := range map[string]openai.Config{
		"plain": {}, "openai": {CompletionTokens: true}, "openrouter": {OpenRouter: true}, "mistral": {NoStreamOptions: true},
	} {
		llmtest.Golden(t, "testdata/"+name+".json", *update, func(c wire.Config) llm.Provider {
			own := quirks
			own.Config = c
			return openai.New(own)
		}, llmtest.Conversation("openai", `{"field":"reasoning_content"}`))
	}
	details := llmtest.Conversation("openai", `{"details":[{"type":"reasoning.encrypted","data":"secret","index":0}]}`)
	llmtest.Golden(t, "testdata/details.json", *update, open, details)
}

// TestDetails has OpenRouter's details come in pieces, and go back whole.
func TestDetails(t *testing.T) {
	stream := chunk(`"reasoning":"hm","reasoning_details":[{"type":"reasoning.text","text":"h","index":0,"format":"x"}]`, "") +
		chunk(`"reasoning_details":[{"type":"reasoning.text","text":"m","index":0,"signature":null}]`, "") +
		chunk(`"reasoning_details":[{"type":"reasoning.text","signature":"sig","index":0},{"type":"reasoning.encrypted","data":"zz","index":1}]`, "") +
		chunk(`"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]`, "tool_calls")
	_, a, err := llmtest.Feed(t, open, []byte(stream))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"dialect":"openai","value":{"field":"reasoning","details":[{"format":"x","index":0,"signature":"sig","text":"hm","type":"reasoning.text"},{"data":"zz","index":1,"type":"reasoning.encrypted"}]}}`
	if r, ok := a.Parts[0].(llm.Reasoning); !ok || string(r.Opaque) != want || r.Text != "hm" {
		t.Errorf("the thought: %+v\n%s, want\n%s", a.Parts[0], r.Opaque, want)
	}
}
