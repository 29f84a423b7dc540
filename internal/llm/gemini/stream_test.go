package gemini_test

import (
	"flag"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/llm/gemini"
	"github.com/cubbyhq/cubby/internal/llm/llmtest"
	"github.com/cubbyhq/cubby/internal/llm/wire"
)

var update = flag.Bool("update", false, "rewrite golden files")

func open(c wire.Config) llm.Provider { return gemini.New(c) }

func FuzzStream(f *testing.F) { llmtest.Fuzz(f, open, llmtest.Gemini{}) }

// TestRequest compares whole requests with golden files.
func TestRequest(t *testing.T) {
	for _, model := range []string{"gemini-2.5-pro", "gemini-3-pro-preview", "gemini-2.0-flash"} {
		r := llmtest.Conversation("gemini", `{"signature":"signed","thought":true,"id":"g1"}`)
		r.Model = model
		llmtest.Golden(t, "testdata/"+model+".json", *update, open, r)
	}
	// The calls were another provider's.
	r := llmtest.Conversation("openai", `{}`)
	r.Model = "gemini-3-pro-preview"
	r.Effort = llm.EffortNone
	llmtest.Golden(t, "testdata/foreign.json", *update, open, r)
}

// TestSignatures has a signature with each kind of part: with what it came it goes
// back.
func TestSignatures(t *testing.T) {
	stream := `data: {"candidates":[{"content":{"parts":[{"text":"hm","thought":true}]}}]}

data: {"candidates":[{"content":{"parts":[{"text":"Look: "},{"text":"so.","thoughtSignature":"with text"}]}}]}

data: {"candidates":[{"content":{"parts":[{"functionCall":{"id":"g1","name":"f","args":{"x":1}},"thoughtSignature":"with call"},{"functionCall":{"name":"g"}}]}}]}

data: {"candidates":[{"content":{"parts":[{"text":"","thoughtSignature":"with nothing"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":20,"thoughtsTokenCount":7,"cachedContentTokenCount":60},"modelVersion":"m"}

`
	_, a, err := llmtest.Feed(t, open, []byte(stream))
	if err != nil {
		t.Fatal(err)
	}
	if a.Stop != llm.StopTools || a.Usage != (llm.Usage{Input: 100, Output: 27, CacheRead: 60, Reasoning: 7}) || a.Model != "m" {
		t.Errorf("%q, %+v, %q", a.Stop, a.Usage, a.Model)
	}
	r := llm.Request{Model: "m", Messages: []llm.Message{
		{Role: llm.User, Parts: []llm.Part{llm.Text{Text: "hi"}}},
		{Role: llm.Assistant, Parts: a.Parts},
		{Role: llm.User, Parts: []llm.Part{
			llm.ToolResult{CallID: a.Calls()[0].ID, Name: "f", Parts: []llm.Part{llm.Text{Text: "one"}}},
			llm.ToolResult{CallID: a.Calls()[1].ID, Name: "g", Parts: []llm.Part{llm.Text{Text: "two"}}},
		}},
	}}
	llmtest.Golden(t, "testdata/signatures.json", *update, open, r)
}

func TestReasons(t *testing.T) {
	finish := func(reason, parts string) string {
		return `data: {"candidates":[{"content":{"parts":[` + parts + `]},"finishReason":"` + reason + `"}]}` + "\n\n"
	}
	text := `{"text":"I"}`
	for stream, want := range map[string]llm.Stop{
		finish("STOP", text):                           llm.StopEnd,
		finish("STOP", ""):                             llm.StopEnd,
		finish("MAX_TOKENS", text):                     llm.StopLength,
		finish("SAFETY", ""):                           llm.StopRefused,
		finish("RECITATION", text):                     llm.StopRefused,
		finish("PROHIBITED_CONTENT", ""):               llm.StopRefused,
		finish("OTHER", text):                          llm.StopEnd,
		finish("OTHER", ""):                            "",
		finish("MALFORMED_FUNCTION_CALL", ""):          "",
		finish("STOP", `{"functionCall":{"args":{}}}`): "",
		`data: {"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":5}}` + "\n\n": llm.StopRefused,
		`data: {"candidates":[{"finishReason":"SAFETY"}]}` + "\n\n":                                         llm.StopRefused,
	} {
		_, a, err := llmtest.Feed(t, open, []byte(stream))
		if a.Stop != want || (err != nil) != (want == "") {
			t.Errorf("%s: %q, %v, want %q", stream, a.Stop, err, want)
		}
	}
	picture := `{"inlineData":{"mimeType":"image/png","data":"AQID"}}`
	_, a, err := llmtest.Feed(t, open, []byte(finish("STOP", text+","+picture)))
	want := []llm.Part{llm.Text{Text: "I"}, llm.Image{MIME: "image/png", Data: []byte{1, 2, 3}}}
	if d := cmp.Diff(want, a.Parts); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}
