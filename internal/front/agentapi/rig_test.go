package agentapi_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/agent/items"
	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/agentapi"
	"github.com/cubbyhq/cubby/internal/front/compat/sandboxagent"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
	"github.com/cubbyhq/cubby/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is the API over a real agent, whose model is scripted and whose tools do
// nothing.
type rig struct {
	t       *testing.T
	url     string
	dir     string
	stop    func() // the daemon, in good order
	unset   bool   // no model
	beat    time.Duration
	returns time.Duration // how long clients of an earlier daemon are waited for
	waiting chan struct{}
	release chan struct{}

	mu    sync.Mutex
	calls []string // that the model made; guarded by mu
}

// newRig starts the API. With root it is at the root too.
func newRig(t *testing.T, root bool) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), beat: time.Minute, waiting: make(chan struct{}, 10), release: make(chan struct{})}
	r.start(root)
	return r
}

func (r *rig) start(root bool) {
	t := r.t
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(r.dir, "cubby.db")})
	if err != nil {
		t.Fatal(err)
	}
	journals, err := journal.Open(filepath.Join(r.dir, "agent"), journal.Limits{PerExec: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	hooks := webhook.New(webhook.Config{Store: db, Private: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	s := agent.New(agent.Config{Webhooks: hooks, Describe: agentapi.DescribeRunEnd, Store: db, Journals: journals, Models: r, Hands: r, Returning: r.returns, Bounds: agent.Bounds{Runs: 100, RunsOfTenant: 100, Crons: 5}})
	life, drain := context.WithCancel(context.WithoutCancel(t.Context()))
	log := slog.New(slog.DiscardHandler)
	api := httpapi.New(httpapi.Config{Log: log, Metrics: telemetry.NewMetrics("test"), Life: life}, sandboxagent.Register(nil, s.Threads().Ended),
		agentapi.RegisterBeating(agentapi.Config{Assistants: s.Assistants(), Threads: s.Threads(), Runs: s.Runs(), Crons: s.Crons(), Items: items.New(db, store.ItemBounds{Items: 50, Bytes: 1 << 20}, items.Memory{Room: s.Room}), AtRoot: root}, r.beat))
	server := httptest.NewServer(front.Handler(front.Config{
		Access: func(*http.Request) front.Access { return front.Token }, Log: log, Metrics: telemetry.NewMetrics("test"), Error: api.Error,
	}, api))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done, sent := make(chan error), make(chan error)
	go func() { done <- s.Run(ctx) }()
	go func() { sent <- hooks.Run(ctx) }()
	r.url = server.URL
	r.stop = sync.OnceFunc(func() {
		drain()
		server.Close()
		cancel()
		if err := errors.Join(<-done, <-sent, journals.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { r.stop(); http.DefaultClient.CloseIdleConnections() })
}

// Stream is the model: what it says follows from the last message.
func (r *rig) Stream(ctx context.Context, q llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		last := q.Messages[len(q.Messages)-1].Parts
		text, _ := last[len(last)-1].(llm.Text)
		say := func(list ...llm.Event) {
			for _, e := range list {
				if !yield(e, nil) {
					return
				}
			}
		}
		switch text.Text {
		case "call":
			say(llm.TextDelta{Text: "I look."}, llm.ToolCallDelta{ID: "c1", Name: "look", Arguments: `{"at":`}, llm.ToolCallDelta{Arguments: `"it"}`},
				llm.Usage{Input: 3, Output: 2}, llm.Done{Stop: llm.StopTools})
		case "Delete the old logs":
			say(llm.ToolCallDelta{ID: "c2", Name: "execute_terminal", Arguments: `{"command":"rm -r logs"}`}, llm.Done{Stop: llm.StopTools})
		case "fail":
			yield(nil, &llm.Error{Fault: llm.Denied, Provider: "test", Message: "wrong key"})
		case "wait":
			if !yield(llm.TextDelta{Text: "wait"}, nil) {
				return
			}
			r.waiting <- struct{}{}
			select {
			case <-r.release:
				say(llm.TextDelta{Text: "ed"}, llm.Done{Stop: llm.StopEnd})
			case <-ctx.Done():
				yield(nil, ctx.Err())
			}
		default:
			say(llm.TextDelta{Text: "Ye"}, llm.TextDelta{Text: "s."}, llm.Usage{Input: 1, Output: 1}, llm.Done{Stop: llm.StopEnd})
		}
	}
}

func (r *rig) Choose(context.Context, agent.Choice) (agent.Chosen, error) {
	if r.unset {
		return agent.Chosen{}, errs.E(errs.Unready, "the agent has no model").Hint("set one")
	}
	return agent.Chosen{Model: r, Provider: "test", Name: "m", MaxTurns: 25}, nil
}

func (r *rig) Tools(context.Context, string, string) loop.Tools { return r }

func (*rig) List() []llm.Tool { return []llm.Tool{{Name: "look"}, {Name: "execute_terminal"}} }

func (r *rig) Call(_ context.Context, c loop.Call) loop.Result {
	r.mu.Lock()
	r.calls = append(r.calls, c.Name+string(c.Arguments))
	r.mu.Unlock()
	c.Output("box", "stdout", "looking\n")
	return loop.Result{Content: "seen"}
}

func (*rig) Describe(context.Context, string, string) string { return "" }

func (*rig) Instructions(context.Context, string, string) string { return "" }

func (*rig) Engage(context.Context, string) func() { return func() {} }

func (*rig) End(context.Context, string) error { return nil }

// waits returns when the model waits.
func (r *rig) waits() {
	r.t.Helper()
	select {
	case <-r.waiting:
	case <-time.After(20 * time.Second):
		r.t.Fatal("the model was not asked")
	}
}

// answer is what a request got.
type answer struct {
	status int
	header http.Header
	body   string
}

// into decodes the body.
func (a answer) into(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		t.Fatalf("%q: %v", a.body, err)
	}
}

func (r *rig) request(ctx context.Context, method, path, body string, headers ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return http.DefaultClient.Do(req)
}

// do makes a request below /agent unless the path says that it is of the root, as
// "root:/threads".
func (r *rig) do(method, path, body string, headers ...string) answer {
	r.t.Helper()
	path, atRoot := strings.CutPrefix(path, "root:")
	if !atRoot {
		path = "/agent" + path
	}
	res, err := r.request(r.t.Context(), method, path, body, headers...)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{res.StatusCode, res.Header, string(raw)}
}

func (r *rig) thread() string {
	r.t.Helper()
	var made struct {
		ID string `json:"thread_id"`
	}
	r.do("POST", "/threads", "{}").into(r.t, &made)
	return made.ID
}

func says(text, more string) string {
	return `{"assistant_id":"agent","input":{"messages":[{"role":"user","content":"` + text + `"}]}` + more + `}`
}

// event is one of a stream, as it was written.
type event struct{ id, name, data string }

// events reads a stream, and checks its framing: a comment has no blank line behind
// it, and an event has all of its lines.
func events(t *testing.T, r io.Reader) []event {
	t.Helper()
	list, err := read(bufio.NewReaderSize(r, 1<<20), -1)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return list
}

// read reads n events, or all.
func read(r *bufio.Reader, n int) (list []event, err error) {
	for len(list) != n {
		var e event
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return list, err
			}
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, ":") {
				continue
			}
			if line == "" {
				break
			}
			field, value, _ := strings.Cut(line, ": ")
			switch field {
			case "event":
				e.name = value
			case "data":
				e.data = value
			case "id":
				e.id = value
			default:
				return list, errors.New("a line of no event: " + line)
			}
		}
		if e.name == "" || e.data == "" || e.id == "" {
			return list, errors.New("half an event: " + e.name + " " + e.data + " " + e.id)
		}
		list = append(list, e)
	}
	return list, nil
}

func names(list []event) string {
	var b bytes.Buffer
	for _, e := range list {
		b.WriteString(e.name + " ")
	}
	return strings.TrimSpace(b.String())
}
