// Package agentapi is the REST API of LangGraph's platform over cubby's agent: what
// LangGraph's SDKs, useStream and chat applications speak. It is served below /agent,
// and at the root too where the operator wants that. Each handler decodes, makes one
// call of the agent and encodes; it knows no rule about threads and runs. Streams are
// read from the journal of their run as fast as their client takes them.
//
// Fields of requests that would be ignored to somebody's harm are refused.
package agentapi

import (
	"net/http"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/agent/items"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
)

// Prefix is where the API always is.
const Prefix = "/agent"

// Config is what the API needs.
type Config struct {
	Assistants *agent.Assistants
	Threads    *agent.Threads
	Runs       *agent.Runs
	Crons      *agent.Crons
	Items      *items.Items
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
