package tools

import (
	"context"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

type portList struct {
	Success bool   `json:"success"`
	Ports   []port `json:"ports"`
}

type port struct {
	Port      int    `json:"port"`
	Listening bool   `json:"listening"`
	URL       string `json:"url,omitempty" jsonschema:"where the user sees it"`
}

func (s *Set) listPortsTool() Tool {
	return Tool{
		Name: "list_ports", Title: "List ports",
		Description: "Lists the TCP ports that programs of the session listen on, and where the user sees each.",
		Input:       object([]string{"session_id"}, map[string]*jsonschema.Schema{"session_id": sessionID()}),
		Output:      shape[portList](), ReadOnly: true, Idempotent: true,
		run: func(ctx context.Context, c *call) (Answer, error) {
			c.forSession()
			if err := c.readyIfThere(ctx); err != nil {
				return Answer{}, err
			}
			b, err := c.session(ctx)
			if err != nil {
				return Answer{}, err
			}
			ports, err := c.core.Ports().List(ctx, c.id)
			if err != nil {
				return Answer{}, err
			}
			out := portList{Success: true, Ports: []port{}}
			for _, p := range ports {
				out.Ports = append(out.Ports, port{p.Port, p.Listening, c.core.Previews().URL(b.ID, p.Port)})
			}
			return Answer{Value: out}, nil
		},
	}
}

type previewURL struct {
	Success   bool   `json:"success"`
	Port      int    `json:"port"`
	URL       string `json:"url" jsonschema:"where the user sees it"`
	Listening bool   `json:"listening" jsonschema:"whether a program listens on the port now"`
	Public    bool   `json:"public" jsonschema:"whether everybody can open it; else the user has to be signed in"`
}

func (s *Set) previewURLTool() Tool {
	return Tool{
		Name: "preview_url", Title: "Where a port is seen",
		Description: "Returns the address at which the user sees a web server that listens on a port of the session.",
		Input: object([]string{"session_id", "port"}, map[string]*jsonschema.Schema{
			"session_id": sessionID(), "port": portNumber(),
		}),
		Output: shape[previewURL](), ReadOnly: true, Idempotent: true,
		run: func(ctx context.Context, c *call) (Answer, error) {
			c.forSession()
			if !c.has("port") {
				c.add("missing", "port", "Field required")
			}
			n := int(c.number("port", 1, 1, 65535))
			if err := c.readyIfThere(ctx); err != nil {
				return Answer{}, err
			}
			b, err := c.session(ctx)
			if err != nil {
				return Answer{}, err
			}
			p, err := c.core.Ports().Get(ctx, c.id, n)
			if err != nil {
				return Answer{}, err
			}
			url := c.core.Previews().URL(b.ID, n)
			if url == "" {
				return Answer{}, errs.E(errs.Unsupported, "this daemon shows no ports of sandboxes").Hint("ask the server with a command in the session, or export its files")
			}
			return Answer{Value: previewURL{true, n, url, p.Listening, b.Spec.Visibility == sandbox.Public && p.Declared}}, nil
		},
	}
}

// portNumber is a required number, which has no default.
func portNumber() *jsonschema.Schema {
	s := number(0, 1, 65535, "The TCP port.")
	s.Default = nil
	return s
}
