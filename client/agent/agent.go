// Package agent is the Go client of cubby's agent: a language model that has sandboxes
// to work in. A conversation with it is a thread, and each turn of one is a run, whose
// events are streamed.
//
//	a := agent.New(client.FromEnv())
//	t, err := a.CreateThread(ctx, agent.NewThread{})
//	for e, err := range a.Stream(ctx, t.ID, agent.RunRequest{Text: "What is 2**100?"}) {
//		if err != nil {
//			return err
//		}
//		if e.Chunk != nil && e.Chunk.Type == agent.AI {
//			fmt.Print(e.Chunk.Text())
//		}
//	}
//
// The API is LangGraph's, below /agent; the package has of it what a chat needs. Errors
// are those of package client. It repeats no request but those that read: a stream
// whose connection breaks goes on with the run that it has begun.
package agent

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/cubbyhq/cubby/client"
)

const prefix = "/agent"

// Graph is the name of the agent's own assistant.
const Graph = "agent"

// Client talks to the agent of one daemon. It is safe for concurrent use.
type Client struct{ c *client.Client }

// New returns a client of the agent of c's daemon.
func New(c *client.Client) *Client { return &Client{c} }

func (a *Client) do(ctx context.Context, method, path string, body, out any) error {
	return a.c.Do(ctx, client.Request{Method: method, Path: prefix + path, JSON: body}, out)
}

// path is that of something below a thread. Elements are escaped.
func path(thread string, elems ...string) string {
	p := "/threads/" + url.PathEscape(thread)
	for _, e := range elems {
		p += "/" + url.PathEscape(e)
	}
	return p
}

// Assistant is the agent with settings of its own.
type Assistant struct {
	ID          string          `json:"assistant_id"`
	GraphID     string          `json:"graph_id"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Version     int             `json:"version"`
	Config      json.RawMessage `json:"config"`
	Context     json.RawMessage `json:"context"`
	CreatedAt   time.Time       `json:"created_at"`
	UpdatedAt   time.Time       `json:"updated_at"`
}

// Assistants lists the assistants, up to limit; 0 is the daemon's choice.
func (a *Client) Assistants(ctx context.Context, limit int) ([]Assistant, error) {
	var list []Assistant
	return list, a.do(ctx, http.MethodPost, "/assistants/search", page(limit, 0), &list)
}

// Assistant returns an assistant by its id, or [Graph].
func (a *Client) Assistant(ctx context.Context, id string) (Assistant, error) {
	var got Assistant
	return got, a.do(ctx, http.MethodGet, "/assistants/"+url.PathEscape(id), nil, &got)
}

func page(limit, offset int) map[string]any {
	p := map[string]any{}
	if limit > 0 {
		p["limit"] = limit
	}
	if offset > 0 {
		p["offset"] = offset
	}
	return p
}
