package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/store"
)

// model answers what people say: "call TOOL" calls it, "wait" waits until it is
// released or its request ends, and other words are repeated.
type model struct {
	mu      sync.Mutex
	asked   []llm.Request
	waiting chan struct{} // told when "wait" waits
	release chan struct{}
}

func newModel() *model {
	return &model{waiting: make(chan struct{}, 100), release: make(chan struct{})}
}

func (m *model) requests() []llm.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.asked)
}

func (m *model) Stream(ctx context.Context, q llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		m.mu.Lock()
		m.asked = append(m.asked, q)
		m.mu.Unlock()
		last := q.Messages[len(q.Messages)-1].Parts
		text, _ := last[len(last)-1].(llm.Text)
		word, rest, _ := strings.Cut(text.Text, " ")
		switch word {
		case "call":
			_ = yield(llm.ToolCallDelta{ID: "c" + rest, Name: rest, Arguments: "{}"}, nil) && yield(llm.Done{Stop: llm.StopTools}, nil)
			return
		case "fail":
			yield(nil, &llm.Error{Fault: llm.Denied, Provider: "test", Message: "wrong key"})
			return
		case "wait":
			if !yield(llm.TextDelta{Text: "waiting"}, nil) {
				return
			}
			m.waiting <- struct{}{}
			select {
			case <-m.release:
			case <-ctx.Done():
				yield(nil, ctx.Err())
				return
			}
		}
		said := "did it"
		if text.Text != "" {
			said = "said " + text.Text
		}
		_ = yield(llm.TextDelta{Text: said}, nil) && yield(llm.Usage{Input: 1, Output: 1}, nil) && yield(llm.Done{Stop: llm.StopEnd}, nil)
	}
}

// world is what surrounds an agent under test, and outlives its daemons.
type world struct {
	t       *testing.T
	dir     string
	model   *model
	choices []agent.Choice
	ended   []string
	engaged []string // the threads in which runs go on; guarded by mu
	unset   bool
	called  func(ctx context.Context, c loop.Call) loop.Result
	within  func(thread string) (leave func()) // is told of calls in a thread
	choose  func(ctx context.Context) error    // is asked first, if it is not nil
	ending  func() error                       // of a thread's sandboxes
	now     func() time.Time
	full    atomic.Bool // the disk
	bounds  agent.Bounds
	url     string // of a database in place of SQLite
	log     *slog.Logger
	returns time.Duration // how long clients of an earlier daemon are waited for
	opened  func()        // is called when the store of a daemon is open, if it is not nil

	mu sync.Mutex
}

func (w *world) Choose(ctx context.Context, c agent.Choice) (agent.Chosen, error) {
	if w.choose != nil {
		if err := w.choose(ctx); err != nil {
			return agent.Chosen{}, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.choices = append(w.choices, c)
	if w.unset {
		return agent.Chosen{}, errs.E(errs.Unready, "no model is set")
	}
	return agent.Chosen{Model: w.model, Provider: "test", Name: "m", MaxTurns: 25}, nil
}

func (w *world) Tools(_ context.Context, thread, _ string) loop.Tools { return tools{w, thread} }

func (*world) Describe(context.Context, string, string) string { return "A test." }

func (*world) Instructions(context.Context, string, string) string { return "Be kind." }

func (w *world) Engage(_ context.Context, thread string) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.engaged = append(w.engaged, thread)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.engaged = slices.Delete(w.engaged, slices.Index(w.engaged, thread), slices.Index(w.engaged, thread)+1)
	}
}

func (w *world) End(_ context.Context, thread string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ending != nil {
		return w.ending()
	}
	w.ended = append(w.ended, thread)
	return nil
}

type tools struct {
	w      *world
	thread string
}

func (tools) List() []llm.Tool { return []llm.Tool{{Name: "run"}} }

func (t tools) Call(ctx context.Context, c loop.Call) loop.Result {
	if t.w.within != nil {
		defer t.w.within(t.thread)()
	}
	if t.w.called != nil {
		return t.w.called(ctx, c)
	}
	return loop.Result{Content: "ran " + c.Name}
}

// newDatabase, when it is set, returns the URL of an empty one.
var newDatabase func(testing.TB) string

func newWorld(t *testing.T) *world {
	url := ""
	if newDatabase != nil {
		url = newDatabase(t)
	}
	return &world{t: t, url: url, dir: t.TempDir(), model: newModel(), bounds: agent.Bounds{Runs: 100, RunsOfTenant: 50}}
}

func (w *world) admit() error {
	if w.full.Load() {
		return errs.E(errs.Exhausted, "the disk is full")
	}
	return nil
}

func (w *world) db() string { return filepath.Join(w.dir, "cubby.db") }

// daemon starts an agent, which stops with the test or by stop.
func (w *world) daemon() (s *agent.Service, stop func()) {
	w.t.Helper()
	db, err := store.Open(w.t.Context(), store.Config{Path: w.db(), URL: w.url, Now: w.now})
	if err != nil {
		w.t.Fatal(err)
	}
	journals, err := journal.Open(filepath.Join(w.dir, "agent"), journal.Limits{PerExec: 1 << 20})
	if err != nil {
		w.t.Fatal(err)
	}
	if w.opened != nil {
		w.opened()
	}
	s = agent.New(agent.Config{Store: db, Journals: journals, Models: w, Hands: w, Now: w.now, Bounds: w.bounds, Log: w.log, Returning: w.returns, Admit: w.admit})
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, journals.Close(), db.Close()); err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(stop)
	return s, stop
}

// acme is a context of somebody of the tenant acme.
func acme(t *testing.T) context.Context {
	return auth.WithPrincipal(t.Context(), auth.Principal{Name: "ann", Tenant: "acme"})
}

func says(text string) agent.NewRun {
	input, err := json.Marshal(map[string]any{"messages": []any{map[string]any{"role": "user", "content": text}}})
	if err != nil {
		panic(err)
	}
	return agent.NewRun{AssistantID: "agent", Request: conversation.RunRequest{Input: input}}
}

func newThread(t *testing.T, s *agent.Service) string {
	t.Helper()
	made, err := s.Threads().Create(acme(t), agent.NewThread{})
	if err != nil {
		t.Fatal(err)
	}
	return made.ID
}

func begin(t *testing.T, s *agent.Service, thread string, n agent.NewRun) conversation.Run {
	t.Helper()
	run, _, err := s.Runs().Create(acme(t), thread, n)
	if err != nil {
		t.Fatalf("Create: %v", err)
	}
	return run
}

// do does a run to its end and returns the texts of the state.
func do(t *testing.T, s *agent.Service, thread string, n agent.NewRun) (conversation.Run, []string) {
	t.Helper()
	return wait(t, s, thread, begin(t, s, thread, n))
}

func wait(t *testing.T, s *agent.Service, thread string, run conversation.Run) (conversation.Run, []string) {
	t.Helper()
	state, run, err := s.Runs().Wait(acme(t), thread, run.ID)
	if err != nil {
		t.Fatalf("Wait: %v", err)
	}
	return run, texts(state.Messages)
}

func texts(list []conversation.Message) []string {
	var out []string
	for _, m := range list {
		out = append(out, m.Type+":"+conversation.TextOf(m.Content))
	}
	return out
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

const longest = 30 * time.Second
