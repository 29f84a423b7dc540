package mcp

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

type createdSession struct {
	Success      bool              `json:"success"`
	SessionID    string            `json:"session_id" jsonschema:"what the other tools are given"`
	Runtime      string            `json:"runtime"`
	Status       string            `json:"status" jsonschema:"running"`
	Dependencies map[string]string `json:"dependencies"`
}

func (d *Door) createSessionTool() tool {
	return tool{
		name: "create_session", title: "Create a session",
		description: "Creates an isolated Linux computer to run code and commands in, and installs packages in it. Reuse one session for " +
			"everything that belongs together: variables, files and packages stay until stop_session.",
		input: object(nil, map[string]*jsonschema.Schema{
			"language": {
				Type: "string", Enum: []any{sandbox.RuntimePython, sandbox.RuntimeNode, sandbox.RuntimeR}, Default: []byte(`"python"`),
				Description: "What execute_code runs.",
			},
			"dependencies": {
				Type: "object", AdditionalProperties: anyOf(&jsonschema.Schema{Type: "string"}, &jsonschema.Schema{Type: "number"}, &jsonschema.Schema{Type: "null"}), Default: []byte(`{}`),
				Description: `Packages to install, as {"name": "version"}; an empty version is the newest. From PyPI, npm or CRAN.`,
			},
			"agents": {Type: "boolean", Description: "Have the coding agents that start_task needs."},
		}),
		output: shape[createdSession](), open: true, run: createSession,
	}
}

// idTries bounds how often an id that is taken is replaced by another.
const idTries = 8

func createSession(ctx context.Context, c *call) (answer, error) {
	language := c.oneOf("language", sandbox.RuntimePython, sandbox.RuntimeNode, sandbox.RuntimeR)
	dependencies, agents := c.versions("dependencies"), c.truth("agents")
	if err := c.check(); err != nil {
		return answer{}, err
	}
	done := c.doing(ctx, "creating the session")
	defer done()
	door := Interface
	if wantsSix(c.req.Extra) {
		door = SixInterface
	}
	req := lifecycle.CreateRequest{Interface: door, Spec: sandbox.Spec{Runtime: language, Dependencies: dependencies, Thread: c.thread(ctx), AutoWake: sandbox.AutoWakeAlways}}
	if agents {
		req.Spec.Image = agentsImage
	}
	var b sandbox.Sandbox
	err := error(errs.Conflict)
	for try := 0; try < idTries && errors.Is(err, errs.Conflict); try++ {
		id := make([]byte, 4)
		_, _ = rand.Read(id) // it does not fail
		req.ID = hex.EncodeToString(id)
		b, err = c.core.Sandboxes().Create(ctx, req)
	}
	if agents {
		err = noAgents(err)
	}
	if err != nil {
		return answer{}, err
	}
	return answer{value: createdSession{true, string(b.ID), runtimeOf(b), status(b), dependencies}}, nil
}

type stoppedSession struct {
	Success bool `json:"success" jsonschema:"false when there is no such session"`
}

func (d *Door) stopSessionTool() tool {
	return tool{
		name: "stop_session", title: "Stop a session",
		description: "Ends a session and frees its place. Its files and exports are gone then.",
		input:       object([]string{"session_id"}, map[string]*jsonschema.Schema{"session_id": sessionID()}),
		output:      shape[stoppedSession](), destructive: true, idempotent: true,
		run: func(ctx context.Context, c *call) (answer, error) {
			id := c.text("session_id")
			if err := c.check(); err != nil {
				return answer{}, err
			}
			_, err := c.session(ctx, id)
			if err == nil {
				err = c.core.Sandboxes().Destroy(ctx, id, false)
			}
			if err != nil && !errors.Is(err, errs.NotFound) {
				return answer{}, err
			}
			return answer{value: stoppedSession{err == nil}}, nil
		},
	}
}

type sessionList struct {
	Sessions []session `json:"sessions"`
}

type session struct {
	activeSession
	Dependencies map[string]string `json:"dependencies"`
	CreatedAt    time.Time         `json:"created_at"`
	LastActivity time.Time         `json:"last_activity"`
}

func (d *Door) listSessionsTool() tool {
	return tool{
		name: "list_sessions", title: "List sessions", description: "Lists the sessions of this conversation.",
		input: object(nil, nil), output: shape[sessionList](), readOnly: true, idempotent: true,
		run: func(ctx context.Context, c *call) (answer, error) {
			boxes, err := c.core.Threads().Sandboxes(ctx, c.thread(ctx))
			list := sessionList{Sessions: []session{}}
			for _, b := range boxes {
				s := session{
					activeSession: activeSession{string(b.ID), runtimeOf(b), status(b)}, Dependencies: b.Spec.Dependencies,
					CreatedAt: b.CreatedAt.UTC(), LastActivity: b.LastActiveAt.UTC(),
				}
				if s.Dependencies == nil {
					s.Dependencies = map[string]string{}
				}
				list.Sessions = append(list.Sessions, s)
			}
			return answer{value: list}, err
		},
	}
}
