// Package agentapi is the REST API of LangGraph's platform over cubby's agent: what
// LangGraph's SDKs, useStream and chat applications speak. It is served below /agent,
// and at the root too where the operator wants that. Each handler decodes, makes one
// call of the agent and encodes; it knows no rule about threads and runs. Streams are
// read from the journal of their run as fast as their client takes them.
//
// What the platform has and cubby has not, its store and its schedules, is refused in
// so many words, and so are the fields of requests that would be ignored to somebody's
// harm.
package agentapi

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
)

// Prefix is where the API always is.
const Prefix = "/agent"

// Assistants is what the door uses of them.
type Assistants interface {
	Search(ctx context.Context, q agent.AssistantQuery) ([]conversation.Assistant, int, error)
	Get(ctx context.Context, id string) (conversation.Assistant, error)
	Create(ctx context.Context, n agent.NewAssistant) (conversation.Assistant, error)
	Update(ctx context.Context, id string, p agent.AssistantPatch) (conversation.Assistant, error)
	Delete(ctx context.Context, id string, withThreads bool) error
}

// Threads is what the door uses of them.
type Threads interface {
	Create(ctx context.Context, n agent.NewThread) (conversation.Thread, error)
	Get(ctx context.Context, id string) (agent.ThreadView, error)
	Search(ctx context.Context, q agent.ThreadQuery) ([]conversation.Thread, int, error)
	View(ctx context.Context, t conversation.Thread) (agent.ThreadView, error)
	Update(ctx context.Context, id string, metadata map[string]json.RawMessage) (agent.ThreadView, error)
	Delete(ctx context.Context, id string) error
	Copy(ctx context.Context, id string) (conversation.Thread, error)
	State(ctx context.Context, id, checkpoint string) (agent.State, error)
	History(ctx context.Context, id string, q agent.HistoryQuery) (iter.Seq2[agent.State, error], error)
	Change(ctx context.Context, id string, c agent.StateChange) (conversation.Checkpoint, error)
	Annotate(ctx context.Context, id, checkpoint string, metadata map[string]json.RawMessage) (conversation.Checkpoint, error)
}

// Runs is what the door uses of them.
type Runs interface {
	Create(ctx context.Context, thread string, n agent.NewRun) (conversation.Run, conversation.Thread, error)
	Get(ctx context.Context, thread, run string) (conversation.Run, error)
	List(ctx context.Context, thread string, q agent.RunQuery) ([]conversation.Run, error)
	Delete(ctx context.Context, thread, run string) error
	Cancel(ctx context.Context, thread, run string, rollback, wait bool) (conversation.Run, error)
	Follow(ctx context.Context, thread, run string, after int64) iter.Seq2[conversation.Recorded, error]
	Attach(ctx context.Context, thread, run string, cancelOnDisconnect bool) (release func(), err error)
	Wait(ctx context.Context, thread, run string) (agent.State, conversation.Run, error)
}

// Config is what the API needs.
type Config struct {
	Assistants Assistants
	Threads    Threads
	Runs       Runs
	// AtRoot serves the API at the root too.
	AtRoot bool
}

// heartbeatEvery keeps streams and waits from being taken for dead: clients learn the
// rhythm, and give up after three silent beats.
const heartbeatEvery = 5 * time.Second

// door has the handlers.
type door struct {
	*httpapi.Server
	Config

	heartbeat time.Duration
}

// Register returns what adds the API to a server.
func Register(c Config) func(*httpapi.Server) {
	return func(s *httpapi.Server) { register(s, c, heartbeatEvery) }
}

func register(s *httpapi.Server, c Config, heartbeat time.Duration) {
	d := &door{s, c, heartbeat}
	words := s.AddDialect(httpapi.Dialect{
		Name:        "langgraph",
		Description: "The agent, as LangGraph's platform: assistants, threads and runs. Clients are given the URL of the daemon with " + Prefix + " at its end.",
		Prefix:      "LangGraph", ErrorShape: Error{}, Below: d.below, Refuse: refuse, RefuseMethod: refuseMethod,
	})
	s.AddRoutes(words, d.routes(Prefix, "langgraph-")...)
	if c.AtRoot {
		s.AddRoutes(words, d.routes("", "langgraph-root-")...)
	}
}

// below reports whether a path is the API's. At the root it leaves the paths of
// sandboxes alone.
func (d *door) below(path string) bool {
	if path == Prefix || strings.HasPrefix(path, Prefix+"/") {
		return true
	}
	if !d.AtRoot || strings.HasPrefix(path, "/threads/") && strings.Contains(path, "/files/") {
		return false
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "assistants", "threads", "runs", "store", "info", "ok":
		return true
	}
	return false
}

// always claims a route that another dialect has at the root too.
func always(*http.Request) bool { return true }
