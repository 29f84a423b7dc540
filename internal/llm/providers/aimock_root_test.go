//go:build root

package providers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/llm/llmtest"
)

// aimock starts a server that speaks the providers' protocols and is none of ours.
func aimock(t *testing.T, fixtures []any) string {
	t.Helper()
	cmd := exec.Command("../../../scripts/app-packages.sh", "opencode")
	cmd.Stderr = os.Stderr
	tar, err := cmd.Output()
	if err != nil {
		t.Fatalf("fetch the packages: %v", err)
	}
	return llmtest.Aimock(t, strings.TrimSpace(string(tar)), fixtures, "-c", "4", "--strict")
}

// fixtures of one provider: its name is in the user's words, as aimock counts how
// often a fixture was used.
func fixtures(name string) []any {
	match := func(words string, more map[string]any) map[string]any {
		m := map[string]any{"userMessage": name + " " + words}
		for key, value := range more {
			m[key] = value
		}
		return m
	}
	fixture := func(match, response map[string]any) map[string]any {
		return map[string]any{"match": match, "response": response}
	}
	cut := fixture(match("breaks off", nil), map[string]any{"content": "This answer breaks off in the middle of a sentence."})
	// A connection that is cut at once takes with it what was not read yet.
	cut["truncateAfterChunks"], cut["latency"] = 6, 20
	return []any{
		fixture(match("says hello", nil), map[string]any{"content": "Hello, wörld! 世界 is here.", "usage": map[string]any{
			"prompt_tokens": 12, "completion_tokens": 7, "input_tokens": 12, "output_tokens": 7, "promptTokenCount": 12, "candidatesTokenCount": 7}}),
		fixture(match("thinks", map[string]any{"turnIndex": 0}), map[string]any{
			"reasoning": "I should look first.", "reasoningSignature": "c2lnbmF0dXJl", "content": "Let me look.",
			"toolCalls": []any{
				map[string]any{"id": "call_1", "name": "weather", "arguments": map[string]any{"city": "Rome"}},
				map[string]any{"id": "call_2", "name": "weather", "arguments": map[string]any{"city": "Oslo"}},
			},
		}),
		fixture(match("thinks", map[string]any{"turnIndex": 1}), map[string]any{"content": "Both are sunny."}),
		fixture(match("is limited", map[string]any{"sequenceIndex": 0}), map[string]any{
			"error": map[string]any{"message": "Too many requests.", "type": "rate_limit_error"}, "status": 429, "retryAfter": 1}),
		fixture(match("is limited", nil), map[string]any{"content": "Now it goes."}),
		fixture(match("is refused", nil), map[string]any{"error": map[string]any{"message": "No such luck.", "type": "invalid_request_error"}, "status": 400}),
		cut,
	}
}

func question(model, text string) llm.Request {
	return llm.Request{
		Model: model, System: "Be brief.", Messages: []llm.Message{{Role: llm.User, Parts: []llm.Part{llm.Text{Text: text}}}},
		Tools: []llm.Tool{{Name: "weather", Description: "How the weather is.", Schema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}`)}},
	}
}

// collect asks, and returns the answer, how often it was asked again, and how it failed.
func collect(t *testing.T, p llm.Provider, r llm.Request) (a llm.Answer, again int, err error) {
	t.Helper()
	for e, err := range p.Stream(t.Context(), r) {
		if err != nil {
			return a, again, err
		}
		if _, ok := e.(llm.Retrying); ok {
			again++
		}
		a.Add(e)
	}
	return a, again, nil
}

// TestAimock asks a server that others keep like the real ones, in each dialect.
func TestAimock(t *testing.T) {
	providers := []struct{ name, model string }{
		{"openai", "o3"}, {"anthropic", "claude-sonnet-4-5"}, {"gemini", "gemini-2.5-flash"}, {"ollama", "llama3.2"}, {"openrouter", "anthropic/claude-x"},
	}
	var all []any
	for _, p := range providers {
		all = append(all, fixtures(p.name)...)
	}
	server := aimock(t, all)
	set := New(Config{Pause: time.Millisecond})
	t.Cleanup(func() { _ = set.Close() })
	for _, tt := range providers {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			open := func(base string) llm.Provider {
				if tt.name == "openrouter" {
					base += "/api/v1"
				}
				p, err := set.Open(Source{Provider: tt.name, BaseURL: base, Key: NewKey("test-key"), Trusted: true})
				if err != nil {
					t.Fatal(err)
				}
				return p
			}
			testAimock(t, open(server), tt.name, tt.model)
			rec := record(t, server)
			testAimockTools(t, open(rec.url), rec, tt.name, tt.model)
		})
	}
}

func testAimock(t *testing.T, p llm.Provider, name, model string) {
	a, _, err := collect(t, p, question(model, name+" says hello"))
	if want := []llm.Part{llm.Text{Text: "Hello, wörld! 世界 is here."}}; err != nil || !cmp.Equal(want, a.Parts) || a.Stop != llm.StopEnd {
		t.Errorf("hello: %v, %q, %v", a.Parts, a.Stop, err)
	}
	if a.Usage.Input != 12 || a.Usage.Output != 7 {
		t.Errorf("the usage: %+v", a.Usage)
	}

	a, again, err := collect(t, p, question(model, name+" is limited"))
	if want := []llm.Part{llm.Text{Text: "Now it goes."}}; err != nil || again != 1 || !cmp.Equal(want, a.Parts) {
		t.Errorf("limited: %v, asked again %d times, %v", a.Parts, again, err)
	}
	_, _, err = collect(t, p, question(model, name+" is refused"))
	wantFault(t, err, llm.Invalid)
	a, _, err = collect(t, p, question(model, name+" breaks off"))
	wantFault(t, err, llm.Broken)
	if len(a.Parts) == 0 {
		t.Error("nothing came before it broke off")
	}
}

// testAimockTools has a model think, call two tools and go on with their results.
func testAimockTools(t *testing.T, p llm.Provider, rec *recorder, name, model string) {
	r := question(model, name+" thinks")
	r.Effort = llm.EffortLow
	a, _, err := collect(t, p, r)
	if err != nil || a.Stop != llm.StopTools || len(a.Calls()) != 2 {
		t.Fatalf("the first turn: %#v, %q, %v", a.Parts, a.Stop, err)
	}
	var thought, text string
	for _, part := range a.Parts {
		switch part := part.(type) {
		case llm.Reasoning:
			thought += part.Text
		case llm.Text:
			text += part.Text
		}
	}
	if thought != "I should look first." || text != "Let me look." {
		t.Errorf("it thought %q and said %q", thought, text)
	}
	var results []llm.Part
	for i, c := range a.Calls() {
		if want := fmt.Sprintf(`{"city":%q}`, []string{"Rome", "Oslo"}[i]); c.Arguments != want || c.Name != "weather" {
			t.Errorf("call %d: %+v, want %s", i, c, want)
		}
		results = append(results, llm.ToolResult{CallID: c.ID, Name: c.Name, Parts: []llm.Part{llm.Text{Text: "sunny"}}})
	}
	r.Messages = append(r.Messages, llm.Message{Role: llm.Assistant, Parts: a.Parts}, llm.Message{Role: llm.User, Parts: results})
	a, _, err = collect(t, p, r)
	if want := []llm.Part{llm.Text{Text: "Both are sunny."}}; err != nil || !cmp.Equal(want, a.Parts) {
		t.Errorf("the second turn: %v, %v", a.Parts, err)
	}
	thoughtCameBack(t, name, rec.last())
}

// thoughtCameBack checks that the request of a second turn has what the model thought
// in the first one, for those who want it back.
func thoughtCameBack(t *testing.T, name, body string) {
	t.Helper()
	want := map[string]string{
		"anthropic": `"signature":"c2lnbmF0dXJl"`, "openai": `"reasoning_content":"I should look first."`,
		"ollama": `"reasoning_content":"I should look first."`, "openrouter": `"reasoning_content":"I should look first."`,
	}[name]
	if !strings.Contains(body, want) {
		t.Errorf("the second turn has no %s: %s", want, body)
	}
}

// recorder passes requests on to a server and keeps their bodies.
type recorder struct {
	url    string
	mu     sync.Mutex
	bodies []string // guarded by mu
}

func record(t *testing.T, to string) *recorder {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, FlushInterval: -1, Transport: transport}
	rec := new(recorder)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		rec.mu.Lock()
		rec.bodies = append(rec.bodies, string(body))
		rec.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	rec.url = h.URL
	return rec
}

func (r *recorder) last() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bodies[len(r.bodies)-1]
}
