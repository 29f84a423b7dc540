package llmtest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/llm/wire"
)

// canned answers every request with a stream, without a network.
type canned []byte

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Request: r,
		Body: io.NopCloser(bytes.NewReader(c)),
	}, nil
}

// Feed has a dialect read a stream.
func Feed(t testing.TB, open func(wire.Config) llm.Provider, stream []byte) (events []llm.Event, a llm.Answer, err error) {
	p := open(wire.Config{Name: "somebody", BaseURL: "http://127.0.0.1", Tries: 1, HTTP: &http.Client{Transport: canned(stream)}})
	for e, failed := range p.Stream(t.Context(), hello()) {
		if failed != nil {
			return events, a, failed
		}
		events = append(events, e)
		a.Add(e)
	}
	return events, a, nil
}

// Fuzz has a dialect read whatever there is, and checks what llm promises of every
// answer.
func Fuzz(f *testing.F, open func(wire.Config) llm.Provider, fake Fake) {
	for _, r := range []Reply{
		{Parts: []llm.Part{llm.Text{Text: "Grüße"}}, Stop: llm.StopEnd},
		{Parts: []llm.Part{thought("hm", "s"), call("c1", "f", `{"a":1}`), call("c2", "g", "")}, Stop: llm.StopTools, Usage: llm.Usage{Input: 3, Output: 2}},
		{Stop: llm.StopRefused},
	} {
		var all []byte
		for _, e := range fake.Events(r) {
			all = append(all, e...)
		}
		f.Add(all)
		f.Add(all[:len(all)/2])
	}
	f.Add([]byte(fake.Failure()))
	f.Fuzz(func(t *testing.T, stream []byte) {
		events, a, err := Feed(t, open, stream)
		var e *llm.Error
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("the error is a %T: %v", err, err)
		}
		named := map[int]bool{}
		for i, e := range events {
			switch e := e.(type) {
			case llm.Done:
				if i != len(events)-1 || err != nil {
					t.Fatalf("event %d of %d is the end, then %v", i, len(events), err)
				}
			case llm.ToolCallDelta:
				if !named[e.Index] && (e.Name == "" || e.ID == "" || e.Index != len(named)) {
					t.Fatalf("the call %d begins as %+v", len(named), e)
				}
				named[e.Index] = true
			case llm.Retrying:
				t.Fatal("it was tried again")
			}
		}
		if err == nil && a.Stop == "" {
			t.Fatal("it is over without an end and without an error")
		}
		if _, _, again := Feed(t, open, stream); (again == nil) != (err == nil) || err != nil && !cmp.Equal(err.Error(), again.Error()) {
			t.Fatalf("the same stream: %v, then %v", err, again)
		}
	})
}
