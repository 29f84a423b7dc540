package llmtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/llm/wire"
)

// Run tests a dialect.
func Run(t *testing.T, d Dialect) {
	for _, tt := range []struct {
		name string
		run  func(*testing.T, Dialect)
	}{
		{"text", testText},
		{"pieces", testPieces},
		{"thoughts", testThoughts},
		{"tools", testTools},
		{"parallel tools", testParallel},
		{"arguments", testArguments},
		{"images", testImages},
		{"stops", testStops},
		{"usage", testUsage},
		{"models", testModels},
		{"retries", testRetries},
		{"too much", testTooMuch},
		{"given up", testGivenUp},
		{"later", testLater},
		{"troubles", testTroubles},
		{"broken streams", testBroken},
		{"long lines", testLongLines},
		{"no API", testNoAPI},
		{"silence", testSilence},
		{"leaving", testLeaving},
		{"redirects", testRedirects},
		{"the key", testKey},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, d) })
	}
	if d.Images {
		t.Run("images of the model", func(t *testing.T) { testImagesOut(t, d) })
	}
}

func testText(t *testing.T, d Dialect) {
	s := serve(t, d, events(d.Fake.Events(Reply{Parts: []llm.Part{llm.Text{Text: "Grüße, 世界 😀!"}}, Stop: llm.StopEnd})...))
	temperature := 0.5
	r := llm.Request{
		Model: "one-model", System: "Be kind.", MaxTokens: 100, Temperature: &temperature, Tools: []llm.Tool{weather()},
		Messages: []llm.Message{
			user(llm.Text{Text: "hello"}),
			{Role: llm.Assistant, Parts: []llm.Part{llm.Text{Text: "Hi."}}},
			user(llm.Text{Text: "who are you?"}),
		},
	}
	o := ask(t.Context(), s.provider(), r)
	o.done(t, llm.StopEnd, llm.Text{Text: "Grüße, 世界 😀!"})
	if o.answer.Model != "one-model" {
		t.Errorf("the model is %q", o.answer.Model)
	}
	want := Asked{
		Model: "one-model", System: "Be kind.", Tools: []string{"weather: How the weather is."}, Schemas: s.asked[0].Schemas,
		Turns: []Turn{{"user", []string{"text hello"}}, {"assistant", []string{"text Hi."}}, {"user", []string{"text who are you?"}}},
	}
	if d := cmp.Diff(want, s.asked[0]); d != "" {
		t.Errorf("the request (-want +got):\n%s", d)
	}
	var schema map[string]any
	if err := json.Unmarshal(weather().Schema, &schema); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(schema, s.asked[0].Schemas[0]); d != "" {
		t.Errorf("the schema (-want +got):\n%s", d)
	}
}

func testPieces(t *testing.T, d Dialect) {
	text := llm.Text{Text: "Grüße, 世界 😀!"}
	list := d.Fake.Events(Reply{Parts: []llm.Part{text}, Stop: llm.StopEnd})
	withComments := append([]string{": hello\n\n", "retry: 10\n", "id: 7\n"}, list...)
	for name, a := range map[string]answer{
		"single bytes": pieces(1, list...),
		"three bytes":  pieces(3, list...),
		"CRLF":         pieces(7, strings.ReplaceAll(strings.Join(list, ""), "\n", "\r\n")),
		"CR":           pieces(7, strings.ReplaceAll(strings.Join(list, ""), "\n", "\r")),
		"comments":     events(withComments...),
		"no last line": pieces(1000, strings.TrimRight(strings.Join(list, ""), "\n")),
		"a mark first": events("\ufeff" + strings.Join(list, "")),
	} {
		t.Run(name, func(t *testing.T) {
			ask(t.Context(), serve(t, d, a).provider(), hello()).done(t, llm.StopEnd, text)
		})
	}
}

// thought is one with a signature.
func thought(text, signature string) llm.Reasoning {
	quoted, _ := json.Marshal(signature) // strings always can be
	return llm.Reasoning{Text: text, Opaque: quoted}
}

func call(id, name, arguments string) llm.ToolCall {
	return llm.ToolCall{ID: id, Name: name, Arguments: arguments}
}

func result(c llm.ToolCall, failed bool, parts ...llm.Part) llm.ToolResult {
	return llm.ToolResult{CallID: c.ID, Name: c.Name, Parts: parts, Failed: failed}
}

// testThoughts has a model think, call a tool, and get back what it thought. What
// another provider's model thought does not go to it.
func testThoughts(t *testing.T, d Dialect) {
	first := Reply{Parts: []llm.Part{thought("I should look.", "signed-1"), call("call_1", "weather", `{"city":"Rome"}`)}, Stop: llm.StopTools}
	second := Reply{Parts: []llm.Part{llm.Text{Text: "Sunny."}}, Stop: llm.StopEnd}
	s := serve(t, d, events(d.Fake.Events(first)...), events(d.Fake.Events(second)...))
	p := s.provider()
	r := hello()
	r.Tools = []llm.Tool{weather()}
	r.Effort = llm.EffortMedium
	o := ask(t.Context(), p, r)
	o.done(t, llm.StopTools, llm.Reasoning{Text: "I should look."}, call("", "weather", `{"city":"Rome"}`))
	foreign := llm.Reasoning{Text: "a stranger's", Opaque: json.RawMessage(`{"dialect":"another","value":{"signature":"theirs"}}`)}
	own := append([]llm.Part{foreign, llm.Reasoning{Text: "unsigned"}}, o.answer.Parts...)
	r.Messages = append(r.Messages, llm.Message{Role: llm.Assistant, Parts: own},
		user(result(o.answer.Calls()[0], false, llm.Text{Text: "sunny"})))
	ask(t.Context(), p, r).done(t, llm.StopEnd, llm.Text{Text: "Sunny."})
	back := s.asked[1].Turns[1].Parts
	if strings.Contains(strings.Join(back, "\n"), "stranger") || strings.Contains(strings.Join(back, "\n"), "unsigned") {
		t.Errorf("another's thoughts went back: %q", back)
	}
	if d.Signed && !strings.Contains(strings.Join(back, "\n"), "signed-1") {
		t.Errorf("what went back: %q, want the signature", back)
	}
	if !strings.HasPrefix(back[len(back)-1], "call ") {
		t.Errorf("what went back: %q, want the call last", back)
	}
}

func testTools(t *testing.T, d Dialect) {
	first := Reply{Parts: []llm.Part{llm.Text{Text: "Let me see."}, call("call_1", "weather", `{"city":"Rome","days":2}`)}, Stop: llm.StopTools}
	second := Reply{Parts: []llm.Part{llm.Text{Text: "Sunny."}}, Stop: llm.StopEnd}
	s := serve(t, d, events(d.Fake.Events(first)...), events(d.Fake.Events(second)...))
	p := s.provider()
	r := hello()
	r.Tools = []llm.Tool{weather()}
	o := ask(t.Context(), p, r)
	o.done(t, llm.StopTools, llm.Text{Text: "Let me see."}, call("", "weather", `{"city":"Rome","days":2}`))
	r.Messages = append(r.Messages, llm.Message{Role: llm.Assistant, Parts: o.answer.Parts},
		user(result(o.answer.Calls()[0], true, llm.Text{Text: "no such city"})))
	ask(t.Context(), p, r).done(t, llm.StopEnd, llm.Text{Text: "Sunny."})
	want := []Turn{
		{"user", []string{"text hello"}},
		{"assistant", []string{"text Let me see.", `call weather {"city":"Rome","days":2}`}},
		{"user", []string{"failed no such city"}},
	}
	if d := cmp.Diff(want, s.asked[1].Turns); d != "" {
		t.Errorf("the second request (-want +got):\n%s", d)
	}
}

func testParallel(t *testing.T, d Dialect) {
	calls := []llm.Part{call("call_1", "weather", `{"city":"Rome"}`), call("call_2", "weather", `{"city":"Oslo"}`), call("call_3", "clock", "")}
	s := serve(t, d, events(d.Fake.Events(Reply{Parts: calls, Stop: llm.StopTools})...), events(d.Fake.Events(Reply{Parts: []llm.Part{llm.Text{Text: "So."}}, Stop: llm.StopEnd})...))
	p := s.provider()
	r := hello()
	r.Tools = []llm.Tool{weather(), {Name: "clock"}}
	o := ask(t.Context(), p, r)
	o.done(t, llm.StopTools, call("", "weather", `{"city":"Rome"}`), call("", "weather", `{"city":"Oslo"}`), call("", "clock", ""))
	ids := map[string]bool{}
	var results []llm.Part
	for i, c := range o.answer.Calls() {
		ids[c.ID] = true
		results = append(results, result(c, false, llm.Text{Text: fmt.Sprint("result ", i)}))
	}
	if len(ids) != 3 {
		t.Errorf("the ids are %v", ids)
	}
	// Two messages of the user, and words in between: results come first.
	r.Messages = append(r.Messages, llm.Message{Role: llm.Assistant, Parts: o.answer.Parts}, user(llm.Text{Text: "by the way"}, results[0], results[1]), user(results[2]))
	ask(t.Context(), p, r).done(t, llm.StopEnd, llm.Text{Text: "So."})
	want := []string{"result result 0", "result result 1", "result result 2", "text by the way"}
	if d := cmp.Diff(want, s.asked[1].Turns[2].Parts); d != "" {
		t.Errorf("the results (-want +got):\n%s", d)
	}
}

// testArguments passes on what a model wrote, and sends back what providers take.
func testArguments(t *testing.T, d Dialect) {
	for _, arguments := range []string{"", `{"city":"Rom`, `[1]`, `"word"`, "{}", `{"city":"\u00fc \"x\""}`} {
		t.Run(arguments, func(t *testing.T) {
			s := serve(t, d, events(d.Fake.Events(Reply{Parts: []llm.Part{llm.Text{Text: "Ok."}}, Stop: llm.StopEnd})...))
			c := call("call/1:ü", "weather", arguments)
			r := hello()
			r.Tools = []llm.Tool{weather()}
			r.Messages = append(r.Messages, llm.Message{Role: llm.Assistant, Parts: []llm.Part{c}}, user(result(c, false)))
			ask(t.Context(), s.provider(), r).done(t, llm.StopEnd, llm.Text{Text: "Ok."})
			if back := s.asked[0].Turns[1].Parts[0]; !strings.HasPrefix(back, "call weather {") {
				t.Errorf("what went back: %s", back)
			}
		})
	}
}

func testImages(t *testing.T, d Dialect) {
	picture, seen := llm.Image{MIME: "image/png", Data: []byte{1, 2, 3}}, llm.Image{MIME: "image/jpeg", Data: []byte{4, 5, 6}}
	s := serve(t, d, events(d.Fake.Events(Reply{Parts: []llm.Part{llm.Text{Text: "Nice."}}, Stop: llm.StopEnd})...))
	c := call("call_1", "look", "{}")
	r := hello()
	r.Tools = []llm.Tool{{Name: "look", Description: "Looks."}}
	r.Messages = []llm.Message{
		user(llm.Text{Text: "look"}, picture),
		{Role: llm.Assistant, Parts: []llm.Part{c}},
		user(result(c, false, llm.Text{Text: "seen"}, seen)),
	}
	ask(t.Context(), s.provider(), r).done(t, llm.StopEnd, llm.Text{Text: "Nice."})
	turns := s.asked[0].Turns
	if d := cmp.Diff([]string{"text look", "image image/png AQID"}, turns[0].Parts); d != "" {
		t.Errorf("the question (-want +got):\n%s", d)
	}
	if parts := turns[2].Parts; parts[0] != "result seen" || !slices.Contains(parts, "image image/jpeg BAUG") {
		t.Errorf("the result: %q", parts)
	}
}

func testImagesOut(t *testing.T, d Dialect) {
	picture := llm.Image{MIME: "image/png", Data: []byte{1, 2, 3}}
	s := serve(t, d, events(d.Fake.Events(Reply{Parts: []llm.Part{llm.Text{Text: "Here:"}, picture}, Stop: llm.StopEnd})...))
	ask(t.Context(), s.provider(), hello()).done(t, llm.StopEnd, llm.Text{Text: "Here:"}, picture)
}

func testStops(t *testing.T, d Dialect) {
	for _, stop := range []llm.Stop{llm.StopEnd, llm.StopLength, llm.StopRefused} {
		t.Run(string(stop), func(t *testing.T) {
			s := serve(t, d, events(d.Fake.Events(Reply{Parts: []llm.Part{llm.Text{Text: "I"}}, Stop: stop})...))
			ask(t.Context(), s.provider(), hello()).done(t, stop, llm.Text{Text: "I"})
		})
	}
}

func testUsage(t *testing.T, d Dialect) {
	usage := llm.Usage{Input: 1000, Output: 50, CacheRead: 600}
	s := serve(t, d, events(d.Fake.Events(Reply{Parts: []llm.Part{llm.Text{Text: "Hi."}}, Stop: llm.StopEnd, Usage: usage})...))
	o := ask(t.Context(), s.provider(), hello())
	o.done(t, llm.StopEnd, llm.Text{Text: "Hi."})
	if d := cmp.Diff(usage, o.answer.Usage); d != "" {
		t.Errorf("the usage (-want +got):\n%s", d)
	}
}

func testModels(t *testing.T, d Dialect) {
	path, body, info := d.Fake.Models()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path || r.Method != http.MethodGet {
			t.Errorf("%s %s, want GET %s", r.Method, r.URL.Path, path)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, body)
	}))
	defer h.Close()
	s := &server{t: t, d: d, url: h.URL}
	got, err := s.provider().Models(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]llm.Info{info}, got); d != "" {
		t.Errorf("the models (-want +got):\n%s", d)
	}
	refused := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, body := d.Fake.Trouble(BadKey)
		refusal(status, body)(w, r)
	}))
	defer refused.Close()
	s.url = refused.URL
	_, err = s.provider().Models(t.Context())
	outcome{err: err}.fault(t, llm.Denied)
}

func testKey(t *testing.T, d Dialect) {
	s := serve(t, d)
	p := s.provider(func(c *wire.Config) {
		quiet(t, c, fmt.Sprintf("%v %+v %#v %s", *c, *c, *c, c.Key))
		text, err := json.Marshal(c.Key)
		if err != nil {
			t.Fatal(err)
		}
		quiet(t, c, string(text))
	})
	quiet(t, p, fmt.Sprintf("%v %+v %#v", p, p, p))
}

// testLeaving stops reading in the middle, and the request ends.
func testLeaving(t *testing.T, d Dialect) {
	ended := make(chan struct{})
	list := d.Fake.Events(Reply{Parts: []llm.Part{llm.Text{Text: "one two three"}}, Stop: llm.StopEnd})
	s := serve(t, d, func(w http.ResponseWriter, r *http.Request) {
		events(list[:len(list)-1]...)(w, r)
		<-r.Context().Done()
		close(ended)
	})
	for e, err := range s.provider().Stream(t.Context(), hello()) {
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := e.(llm.TextDelta); ok {
			break
		}
	}
	<-ended
}

// testSilence is a server that does not answer: the caller's patience counts, or
// the bound of silence.
func testSilence(t *testing.T, d Dialect) {
	hang := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	ctx, cancel := context.WithCancel(t.Context())
	s := serve(t, d, func(w http.ResponseWriter, r *http.Request) {
		cancel()
		hang(w, r)
	})
	o := ask(ctx, s.provider(), hello())
	if !errors.Is(o.err, context.Canceled) {
		t.Errorf("the error is %v, want the context's", o.err)
	}
	short := func(c *wire.Config) { c.Idle = 20 * time.Millisecond }
	ask(t.Context(), serve(t, d, hang).provider(short), hello()).fault(t, llm.Unavailable)
	list := d.Fake.Events(Reply{Parts: []llm.Part{llm.Text{Text: "one two three"}}, Stop: llm.StopEnd})
	halfway := func(w http.ResponseWriter, r *http.Request) {
		events(list[:len(list)-1]...)(w, r)
		hang(w, r)
	}
	o = ask(t.Context(), serve(t, d, halfway).provider(func(c *wire.Config) { c.Idle = 200 * time.Millisecond }), hello())
	o.fault(t, llm.Broken)
}
