package llmtest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/llm/wire"
)

// Conversation is a request with everything in it that a dialect writes. own is what
// the dialect wants back with thoughts and calls.
func Conversation(dialect, own string) llm.Request {
	opaque := json.RawMessage(`{"dialect":"` + dialect + `","value":` + own + `}`)
	picture := llm.Image{MIME: "image/png", Data: []byte{1, 2, 3}}
	first, second := call("call_1", "weather", `{"city":"Rome"}`), call("call_2", "look", `{"broken`)
	first.Opaque = opaque
	temperature := 0.5
	return llm.Request{
		Model: "one-model", System: "Be kind.", MaxTokens: 4000, Temperature: &temperature, Effort: llm.EffortMedium,
		Tools: []llm.Tool{weather(), {Name: "look"}},
		Messages: []llm.Message{
			user(llm.Text{Text: "What is this?"}, picture, llm.Image{URL: "https://example.com/cat.jpg"}, llm.File{MIME: "application/pdf", Name: "a.pdf", Data: []byte("%PDF")}),
			{Role: llm.Assistant, Parts: []llm.Part{llm.Reasoning{Text: "an older thought", Opaque: opaque}, llm.Text{Text: "A cat."}}},
			user(llm.Text{Text: "And there?"}),
			{Role: llm.Assistant, Parts: []llm.Part{
				llm.Reasoning{Text: "I should look.", Opaque: opaque}, llm.Reasoning{Text: "not mine", Opaque: json.RawMessage(`{"dialect":"x","value":{}}`)},
				llm.Text{Text: "I look."}, first, second,
			}},
			user(result(first, false, llm.Text{Text: "sunny"}, picture), result(second, true, llm.Text{Text: "no such place"})),
			user(llm.Text{Text: "Go on."}),
		},
	}
}

// kept answers nothing and keeps the request.
type kept struct{ body []byte }

func (k *kept) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	k.body = body
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusTeapot, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// Golden compares what a dialect makes of a request with a file.
func Golden(t *testing.T, file string, update bool, open func(wire.Config) llm.Provider, r llm.Request) {
	t.Helper()
	k := new(kept)
	p := open(wire.Config{Name: "somebody", BaseURL: "http://127.0.0.1", Tries: 1, HTTP: &http.Client{Transport: k}})
	if o := ask(t.Context(), p, r); k.body == nil {
		t.Fatal(o.err)
	}
	var text bytes.Buffer
	if err := json.Indent(&text, k.body, "", "  "); err != nil {
		t.Fatal(err)
	}
	text.WriteByte('\n')
	if update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), text.String()); d != "" {
		t.Errorf("%s (-want +got):\n%s", file, d)
	}
}
