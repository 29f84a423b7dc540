// Package llmtest is the conformance suite of the dialects of language models. Each
// runs against a server of this package that speaks the dialect: it refuses requests
// that the provider would refuse, and answers as the provider documents it. The
// servers share no code with the dialects.
package llmtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/llm/wire"
)

// Secret is the key of the suite. It has what JSON and URLs write differently.
const Secret = `sk-"very/secret&key`

// Dialect is one that the suite tests.
type Dialect struct {
	Name string
	// New returns a provider; the base URL is that of the server, below which the
	// paths of the [Fake] are.
	New  func(wire.Config) llm.Provider
	Fake Fake
	// Images: its models answer with pictures.
	Images bool
	// Signed: what a model thought goes back with a signature.
	Signed bool
}

// Asked is a request that came to a server, in the words of no dialect.
type Asked struct {
	Model, System string
	Tools         []string // name: description
	Schemas       []map[string]any
	// Turns are what was said: user or assistant, and a line for each part, as
	// "text hi", "image image/png AQID", "call weather {…}", "result sunny",
	// "failed …", "thought SIGNATURE hm". Which result is of which call is the
	// server's to check.
	Turns []Turn
}

// Turn is what one side said at once.
type Turn struct {
	Role  string
	Parts []string
}

// Reply is what a server answers, in the words of no dialect. A Reasoning has its
// signature as a JSON string in Opaque.
type Reply struct {
	Parts []llm.Part
	Stop  llm.Stop
	Usage llm.Usage
}

// Kind is a kind of trouble that a server answers with.
type Kind string

// The kinds of trouble.
const (
	BadKey    Kind = "bad key"
	NoModel   Kind = "no model"
	TooLong   Kind = "too long"
	RateLimit Kind = "rate limit"
	Quota     Kind = "quota"
	Overload  Kind = "overload"
	NoEyes    Kind = "no eyes"
	BadParam  Kind = "bad parameter"
)

// Fake speaks a dialect as a provider does.
type Fake interface {
	// Read reads a request for an answer, and says what the provider would refuse.
	Read(r *http.Request, body []byte) (Asked, error)
	// Events are a reply as the events of a stream, each with its empty line.
	Events(Reply) []string
	// Failure is an event that says in the middle of a stream what is wrong.
	Failure() string
	// Trouble is a refusal, as its status and body.
	Trouble(Kind) (int, string)
	// Models is the path of the list of models, and such a list: of one-model, with
	// what the dialect tells of it.
	Models() (path, body string, info llm.Info)
}

// answer answers a request for an answer.
type answer func(w http.ResponseWriter, r *http.Request)

// server is a fake that is told what to answer.
type server struct {
	t       *testing.T
	d       Dialect
	url     string
	mu      sync.Mutex
	answers []answer // guarded by mu, as all below
	asked   []Asked
}

// serve starts a server that gives one answer after the other.
func serve(t *testing.T, d Dialect, answers ...answer) *server {
	t.Helper()
	s := &server{t: t, d: d, answers: answers}
	h := httptest.NewServer(s)
	s.url = h.URL
	t.Cleanup(h.Close)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	asked, err := s.d.Fake.Read(r, body)
	s.mu.Lock()
	var next answer
	if len(s.answers) > 0 {
		next, s.answers = s.answers[0], s.answers[1:]
	}
	s.asked = append(s.asked, asked)
	s.mu.Unlock()
	switch {
	case err != nil:
		s.t.Errorf("%s would refuse %s: %v", s.d.Name, body, err)
		http.Error(w, err.Error(), http.StatusBadRequest)
	case next == nil:
		s.t.Errorf("a request that nobody expected: %s", body)
		http.Error(w, "unexpected", http.StatusTeapot)
	default:
		next(w, r)
	}
}

func (s *server) provider(more ...func(*wire.Config)) llm.Provider {
	c := wire.Config{Name: "somebody", BaseURL: s.url, Key: wire.NewKey(Secret), Pause: time.Millisecond, HTTP: &http.Client{Transport: new(http.Transport)}}
	for _, set := range more {
		set(&c)
	}
	s.t.Cleanup(c.HTTP.CloseIdleConnections)
	return s.d.New(c)
}

// events answers with a stream of events.
func events(list ...string) answer {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, e := range list {
			_, _ = io.WriteString(w, e)
			w.(http.Flusher).Flush()
		}
	}
}

// pieces answers with a stream that arrives a few bytes at a time, whatever they are.
func pieces(n int, list ...string) answer {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for part := range slices.Chunk([]byte(strings.Join(list, "")), n) {
			_, _ = w.Write(part)
			w.(http.Flusher).Flush()
		}
	}
}

// refusal answers with a status, a body and headers.
func refusal(status int, body string, header ...string) answer {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// broken answers with events and then cuts the connection.
func broken(list ...string) answer {
	return func(w http.ResponseWriter, r *http.Request) {
		events(list...)(w, r)
		panic(http.ErrAbortHandler)
	}
}

// outcome is all that came of a request.
type outcome struct {
	answer  llm.Answer
	events  []llm.Event
	retries []llm.Retrying
	err     error
}

func ask(ctx context.Context, p llm.Model, r llm.Request) (o outcome) {
	for e, err := range p.Stream(ctx, r) {
		if err != nil {
			o.err = err
			break
		}
		if again, ok := e.(llm.Retrying); ok {
			o.retries = append(o.retries, again)
		}
		o.events = append(o.events, e)
		o.answer.Add(e)
	}
	return o
}

// fault checks that a request failed as it should, without telling the key.
func (o outcome) fault(t *testing.T, want llm.Fault) {
	t.Helper()
	_ = o.failure(t, want)
}

// failure is as fault, and returns the error.
func (o outcome) failure(t *testing.T, want llm.Fault) *llm.Error {
	t.Helper()
	var e *llm.Error
	if !errors.As(o.err, &e) {
		t.Fatalf("the error is %v (%T), want one of %s", o.err, o.err, want)
	}
	if e.Fault != want || e.Provider != "somebody" {
		t.Fatalf("%s of %s: %v (status %d), want %s", e.Fault, e.Provider, e, e.Status, want)
	}
	quiet(t, e, fmt.Sprintf("%v %+v %#v %v", e, e, e, e.Cause))
	if n := len([]rune(e.Message)); n > 501 {
		t.Errorf("the message has %d characters", n)
	}
	return e
}

// quiet checks that a text does not tell the key.
func quiet(t *testing.T, of any, text string) {
	t.Helper()
	quoted, err := json.Marshal(Secret)
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{Secret, string(quoted[1 : len(quoted)-1]), "very/secret"} {
		if strings.Contains(text, form) {
			t.Errorf("%T tells the key: %s", of, text)
		}
	}
}

// done checks that an answer is whole.
func (o outcome) done(t *testing.T, stop llm.Stop, parts ...llm.Part) {
	t.Helper()
	if o.err != nil {
		t.Fatal(o.err)
	}
	if o.answer.Stop != stop {
		t.Errorf("it stopped with %q, want %q", o.answer.Stop, stop)
	}
	if d := cmp.Diff(parts, plain(o.answer.Parts)); d != "" {
		t.Errorf("the answer (-want +got):\n%s", d)
	}
	if _, ok := o.events[len(o.events)-1].(llm.Done); !ok {
		t.Errorf("the last event is %#v", o.events[len(o.events)-1])
	}
}

// plain leaves out what is opaque and what ids of calls are: they are compared by
// what goes back to the server.
func plain(parts []llm.Part) []llm.Part {
	var out []llm.Part
	for _, p := range parts {
		switch p := p.(type) {
		case llm.Reasoning:
			if p.Text != "" {
				out = append(out, llm.Reasoning{Text: p.Text})
			}
		case llm.ToolCall:
			if p.ID == "" {
				p.ID = "missing"
			} else {
				p.ID = ""
			}
			p.Opaque = nil
			out = append(out, p)
		default:
			out = append(out, p)
		}
	}
	return out
}

func user(parts ...llm.Part) llm.Message { return llm.Message{Role: llm.User, Parts: parts} }

func hello() llm.Request {
	return llm.Request{Model: "one-model", Messages: []llm.Message{user(llm.Text{Text: "hello"})}}
}

func weather() llm.Tool {
	return llm.Tool{
		Name: "weather", Description: "How the weather is.",
		Schema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string","description":"Where."},"days":{"type":"integer"}},"required":["city"]}`),
	}
}
