package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/client/agent"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a daemon whose thread t has one run r, which tells some events: for each
// connection it writes so many bytes of what is left of them.
type server struct {
	*httptest.Server

	events []string // name and data, numbered from 0
	cuts   []int    // bytes of each connection; after the last one all
	clean  bool     // connections are closed in good order all the same
	status string   // of the run
	// location is the header; "": none.
	location string

	mu       sync.Mutex
	requests []string
	bodies   []map[string]any
}

func start(t *testing.T, s *server) *agent.Client {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /agent/threads/t/runs/stream", s.stream)
	mux.HandleFunc("GET /agent/threads/t/runs/r/stream", s.stream)
	mux.HandleFunc("GET /agent/threads/t/runs/r", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		fmt.Fprintf(w, `{"run_id":"r","thread_id":"t","status":%q}`, s.status)
	})
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		var body map[string]any
		_ = json.Unmarshal(data, &body)
		s.mu.Lock()
		s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Last-Event-ID"))
		s.bodies = append(s.bodies, body)
		s.mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "no token", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	c := client.New(s.URL, client.WithToken("secret"))
	t.Cleanup(func() {
		c.Close()
		s.Close()
	})
	return agent.New(c)
}

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *server) stream(w http.ResponseWriter, r *http.Request) {
	from := 0
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		n, err := strconv.Atoi(last)
		if err != nil {
			http.Error(w, "bad id", http.StatusBadRequest)
			return
		}
		from = n + 1
	}
	var text bytes.Buffer
	for i := from; i < len(s.events); i++ {
		name, data, _ := strings.Cut(s.events[i], " ")
		fmt.Fprintf(&text, "event: %s\ndata: %s\nid: %d\n\n: heartbeat\n", name, data, i)
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Content-Location", "/threads/t/runs/r")
	if s.location != "" {
		w.Header().Set("Location", s.location)
	}
	s.mu.Lock()
	cut := -1
	if len(s.cuts) > 0 {
		cut, s.cuts = s.cuts[0], s.cuts[1:]
	}
	s.mu.Unlock()
	if cut < 0 || cut >= text.Len() {
		_, _ = w.Write(text.Bytes())
		return
	}
	_, _ = w.Write(text.Bytes()[:cut])
	_ = http.NewResponseController(w).Flush() // the client is there
	if !s.clean {
		panic(http.ErrAbortHandler)
	}
}

// script is a run that says something, calls a tool and says something more.
func script() []string {
	return []string{
		`metadata {"run_id":"r","attempt":1}`,
		`messages [{"type":"AIMessageChunk","id":"m1","content":"Grüß "},{"langgraph_node":"agent"}]`,
		`messages [{"type":"ai","id":"m1","content":[{"type":"reasoning","reasoning":"hm"},{"type":"text","text":"日本","index":1}],` +
			`"tool_call_chunks":[{"index":0,"id":"c1","name":"execute_code","args":"{\"a\""}]},{"langgraph_node":"agent"}]`,
		`custom {"type":"tool_output","tool_call_id":"c1","stream":"stdout","text":"1\n"}`,
		`custom 7`,
		`messages [{"type":"tool","id":"m2","tool_call_id":"c1","name":"execute_code","content":"{}","status":"error","artifact":{"x":1}},{"langgraph_node":"tools"}]`,
		`updates {"tools":{"messages":[{"type":"tool","id":"m2","content":"{}"}]}}`,
		`later {"who":"knows"}`,
		`updates {"__interrupt__":[{"id":"i1","value":{"action_requests":[{"name":"rm","args":{}}],"review_configs":[]}}]}`,
	}
}

// told is what came, in short.
func told(events []agent.Event) string {
	var b strings.Builder
	for _, e := range events {
		switch {
		case e.Begun != nil:
			fmt.Fprintf(&b, "begun %s;", e.Begun.RunID)
		case e.Chunk != nil:
			fmt.Fprintf(&b, "%s %s %q %q %s%v;", e.Chunk.Node, e.Chunk.Type, e.Chunk.Text(), e.Chunk.Reasoning(), e.Chunk.Status, e.Chunk.ToolCallChunks)
		case e.Notice != nil:
			fmt.Fprintf(&b, "%s %q;", e.Notice.Type, e.Notice.Text)
		case e.Updates != nil:
			fmt.Fprintf(&b, "updates %d;", len(e.Updates["tools"].Messages))
		case e.Values != nil:
			fmt.Fprintf(&b, "values %d;", len(e.Values.Messages))
		case e.Interrupts != nil:
			q, ok := e.Interrupts[0].Question()
			fmt.Fprintf(&b, "interrupt %s %v %s;", e.Interrupts[0].ID, ok, q.Actions[0].Name)
		case e.Error != nil:
			fmt.Fprintf(&b, "error %v;", e.Error)
		case e.End != nil:
			fmt.Fprintf(&b, "end %s;", e.End.Status)
		default:
			fmt.Fprintf(&b, "%s;", e.Name)
		}
	}
	return b.String()
}

const scripted = `begun r;agent ai "Grüß " "" [];agent ai "日本" "hm" [{0 c1 execute_code {"a"}];tool_output "1\n";custom;` +
	`tools tool "{}" "" error[];updates 1;later;interrupt i1 true rm;end interrupted;`

func collect(t *testing.T, a *agent.Client, r agent.RunRequest) ([]agent.Event, error) {
	t.Helper()
	var events []agent.Event
	for e, err := range a.Stream(t.Context(), "t", r) {
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
	return events, nil
}

// TestStreamOverBrokenConnections cuts a stream at many places, in the middle of events
// and characters: nothing is missing and nothing comes twice.
func TestStreamOverBrokenConnections(t *testing.T) {
	whole := 0
	for i, e := range script() {
		whole += len(fmt.Sprintf("event: \ndata: \nid: %d\n\n: heartbeat\n", i)) + len(e) - 1
	}
	for _, clean := range []bool{false, true} {
		s := &server{events: script(), status: "running", clean: clean, location: "/threads/t/runs/r/stream"}
		if !clean {
			s.status = "interrupted"
		}
		a := start(t, s)
		step := 41 // of every place in lines and events some
		if clean {
			step = whole/3 + 1 // each asks for the run
		}
		for cut := 1; cut < whole; cut += step {
			s.set(func() {
				if s.cuts = []int{cut}; clean {
					s.status = "running"
				}
			})
			var events []agent.Event
			for e, err := range a.Stream(t.Context(), "t", agent.RunRequest{Text: "go"}) {
				if err != nil {
					t.Fatalf("cut at %d: %v", cut, err)
				}
				if events = append(events, e); e.Interrupts != nil {
					s.set(func() { s.status = "interrupted" })
				}
			}
			if got := told(events); got != scripted {
				t.Fatalf("cut at %d (in good order: %v):\n%s\nwant\n%s", cut, clean, got, scripted)
			}
		}
	}
}

// TestStreamComesBackWhereTheDaemonSays: at the Location, or else at the run's place.
func TestStreamComesBackWhereTheDaemonSays(t *testing.T) {
	for location, want := range map[string]string{
		"":                                       "/agent/threads/t/runs/r/stream?stream_mode=custom",
		"/threads/t/runs/r/stream?stream_mode=x": "/agent/threads/t/runs/r/stream?stream_mode=x",
		"http://elsewhere.example/stream":        "/agent/threads/t/runs/r/stream?stream_mode=custom",
	} {
		s := &server{events: script()[:2], status: "success", cuts: []int{80}, location: location}
		a := start(t, s)
		if _, err := collect(t, a, agent.RunRequest{Text: "go", StreamModes: []string{"custom"}}); err != nil {
			t.Fatalf("%s: %v", location, err)
		}
		if got := s.requests[1]; got != "GET "+want+" 0" {
			t.Errorf("with %q it comes back with %q, want %q", location, got, want)
		}
	}
}

func TestStreamEnds(t *testing.T) {
	tests := []struct {
		name, status string
		events       []string
		want         string
	}{
		{"without a word of its end", "success", nil, "end success;"},
		{"with an error", "running", []string{`error {"error":"ValueError","message":"no"}`}, "error no;end error;"},
		{"with a word of its end", "running", []string{`end {"status":"success"}`}, "end success;"},
		{"with an error and a word", "running", []string{`error {"error":"X"}`, `end {"status":"error"}`}, "error X;end error;"},
	}
	for _, tt := range tests {
		s := &server{events: tt.events, status: tt.status}
		events, err := collect(t, start(t, s), agent.RunRequest{Text: "go"})
		if got := told(events); err != nil || got != tt.want {
			t.Errorf("%s: %s, %v; want %s", tt.name, got, err, tt.want)
		}
	}
}

func TestStreamFails(t *testing.T) {
	handlers := map[string]struct {
		answer http.HandlerFunc
		want   client.Code
		text   string
	}{
		"no model": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(503)
			_, _ = io.WriteString(w, `{"error":"unavailable","message":"the agent has no model","detail":"the agent has no model: set one"}`)
		}, client.Unready, "the agent has no model"},
		"busy": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(409)
			_, _ = io.WriteString(w, `{"error":"busy","message":"a run goes on","detail":"a run goes on"}`)
		}, client.Conflict, "a run goes on"},
		"no stream": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) }, client.Internal, ""},
		"no event": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "event: messages\ndata: {\n\n")
		}, client.Internal, ""},
		"nothing": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, client.Unreachable, ""},
	}
	for name, tt := range handlers {
		s := httptest.NewServer(tt.answer)
		c := client.New(s.URL)
		_, err := collect(t, agent.New(c), agent.RunRequest{Text: "go"})
		if !errors.Is(err, tt.want) || tt.text != "" && err.Error() != tt.text {
			t.Errorf("%s: %v, want %v %s", name, err, tt.want, tt.text)
		}
		var e *client.Error
		if name == "no model" && (!errors.As(err, &e) || e.Hint != "set one") {
			t.Errorf("%s: the hint is lost: %+v", name, e)
		}
		c.Close()
		s.Close()
	}
}

// TestStreamGivesUp: a daemon that stays away is one for so long only.
func TestStreamGivesUp(t *testing.T) {
	s := &server{events: script(), status: "running", cuts: []int{100, 0, 0, 0, 0, 0, 0, 0, 0}}
	start(t, s)
	c := client.New(s.URL, client.WithToken("secret"), client.WithResume(0))
	defer c.Close()
	events, err := collect(t, agent.New(c), agent.RunRequest{Text: "go"})
	if !errors.Is(err, client.Unavailable) || len(events) != 1 {
		t.Errorf("%s, %v", told(events), err)
	}
}

func TestStreamIsLeft(t *testing.T) {
	s := &server{events: script(), status: "running"}
	a := start(t, s)
	for range a.Stream(t.Context(), "t", agent.RunRequest{Text: "go"}) {
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	for _, err := range a.Stream(ctx, "t", agent.RunRequest{Text: "go"}) {
		if err != nil {
			if !errors.Is(err, client.Canceled) {
				t.Errorf("a canceled stream ends with %v", err)
			}
			break
		}
		s.set(func() { s.cuts = []int{0} }) // the next one has to come back
		cancel()
	}
	cancel()
	if n := len(s.requests); n > 3 {
		t.Errorf("%d requests: %q", n, s.requests)
	}
}

func TestRunRequest(t *testing.T) {
	s := &server{status: "success"}
	a := start(t, s)
	history := []agent.Message{agent.HumanMessage("before")}
	_, err := collect(t, a, agent.RunRequest{
		Text: "look", Images: []agent.Image{{MIMEType: "image/png", Data: []byte("abc")}}, Messages: history,
		Model: "p/m", SandboxID: "box", Configurable: map[string]any{"k": 1}, RecursionLimit: 5, MustExist: true, Multitask: "enqueue",
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := collect(t, a, agent.RunRequest{Resume: agent.Decisions(agent.Decision{Type: "reject", Message: "no"})}); err != nil {
		t.Fatal(err)
	}
	type m = map[string]any
	modes := []any{"messages-tuple", "updates", "custom"}
	human := func(content any) m { return m{"type": "human", "content": content} }
	want := []map[string]any{
		{
			"assistant_id": "agent", "on_disconnect": "continue", "stream_resumable": true, "if_not_exists": "reject", "stream_mode": modes,
			"multitask_strategy": "enqueue",
			"input": m{"messages": []any{human("before"), human([]any{
				m{"type": "text", "text": "look"}, m{"type": "image", "mimeType": "image/png", "data": "YWJj"},
			})}},
			"config": m{"configurable": m{"k": 1.0, "model": "p/m", "sandbox_id": "box"}, "recursion_limit": 5.0},
		},
		{
			"assistant_id": "agent", "on_disconnect": "continue", "stream_resumable": true, "if_not_exists": "create", "stream_mode": modes,
			"command": m{"resume": m{"decisions": []any{m{"type": "reject", "message": "no"}}}},
		},
	}
	if diff := cmp.Diff(want, []map[string]any{s.bodies[0], s.bodies[2]}); diff != "" {
		t.Error(diff)
	}
}

func FuzzStream(f *testing.F) {
	for _, e := range script() {
		name, data, _ := strings.Cut(e, " ")
		f.Add(fmt.Sprintf("event: %s\r\ndata: %s\n:\nid: 1\n\n", name, data))
	}
	f.Add("data\n\nevent: messages\ndata: [null,null]\n\nevent: updates\ndata: null\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, text)
		}))
		defer s.Close()
		c := client.New(s.URL, client.WithResume(0))
		defer c.Close()
		events, err := collect(t, agent.New(c), agent.RunRequest{Text: "go"})
		for i, e := range events {
			if e.End != nil && i < len(events)-1 {
				t.Errorf("an event comes after the end: %s", told(events))
			}
			if e.Chunk != nil {
				_, _ = e.Chunk.Text(), e.Chunk.Reasoning()
			}
		}
		if err == nil && (len(events) == 0 || events[len(events)-1].End == nil) {
			t.Errorf("no end: %s", told(events))
		}
	})
}
