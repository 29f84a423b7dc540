package tools

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

func (s *Set) createSessionTool() Tool {
	return Tool{
		Name: "create_session", Title: "Create a session",
		Description: "Creates an isolated Linux computer to run code and commands in, and installs packages in it. Reuse one session for " +
			"everything that belongs together: variables, files and packages stay until stop_session.",
		Input: object(nil, map[string]*jsonschema.Schema{
			"language": {
				Type: "string", Enum: anyOfThem(languages), Default: []byte(`"python"`),
				Description: "What execute_code runs.",
			},
			"dependencies": {
				Type: "object", AdditionalProperties: anyOf(&jsonschema.Schema{Type: "string"}, &jsonschema.Schema{Type: "number"}, &jsonschema.Schema{Type: "null"}), Default: []byte(`{}`),
				Description: `Packages to install, as {"name": "version"}; an empty version is the newest. From PyPI, npm or CRAN.`,
			},
			"agents": {Type: "boolean", Description: "Have the coding agents that start_task needs."},
		}),
		Output: shape[createdSession](), Open: true, run: createSession,
	}
}

// languages are those of sessions, the default first.
var languages = []string{sandbox.RuntimePython, sandbox.RuntimeNode, sandbox.RuntimeR}

// idTries bounds how often an id that is taken is replaced by another.
const idTries = 8

func createSession(ctx context.Context, c *call) (Answer, error) {
	language := c.oneOf("language", languages...)
	dependencies, agents := c.versions("dependencies"), c.truth("agents")
	if err := c.check(); err != nil {
		return Answer{}, err
	}
	done := c.doing(ctx, "creating the session")
	defer done()
	req := lifecycle.CreateRequest{Interface: c.Interface, Spec: sandbox.Spec{Runtime: language, Dependencies: dependencies, Thread: c.Thread, AutoWake: sandbox.AutoWakeAlways}}
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
		return Answer{}, err
	}
	c.id = string(b.ID)
	return Answer{Value: createdSession{true, string(b.ID), runtimeOf(b), status(b), dependencies}}, nil
}

type stoppedSession struct {
	Success bool `json:"success" jsonschema:"false when there is no such session"`
}

func (s *Set) stopSessionTool() Tool {
	return Tool{
		Name: "stop_session", Title: "Stop a session",
		Description: "Ends a session and frees its place. Its files and exports are gone then.",
		Input:       object([]string{"session_id"}, map[string]*jsonschema.Schema{"session_id": sessionID()}),
		Output:      shape[stoppedSession](), Destructive: true, Idempotent: true,
		run: func(ctx context.Context, c *call) (Answer, error) {
			c.forSession()
			err := c.readyIfThere(ctx)
			if err == nil {
				_, err = c.session(ctx)
			}
			if err == nil && c.isLent() {
				err = errs.E(errs.Forbidden, "the session is the user's own and is not stopped by a tool")
			}
			if err == nil {
				err = c.core.Sandboxes().Destroy(ctx, c.id, false)
			}
			if err != nil && !errors.Is(err, errs.NotFound) {
				return Answer{}, err
			}
			return Answer{Value: stoppedSession{err == nil}}, nil
		},
	}
}

type sessionList struct {
	Sessions []session `json:"sessions"`
}

type session struct {
	ActiveSession
	Dependencies map[string]string `json:"dependencies"`
	CreatedAt    time.Time         `json:"created_at"`
	LastActivity time.Time         `json:"last_activity"`
}

func (s *Set) listSessionsTool() Tool {
	return Tool{
		Name: "list_sessions", Title: "List sessions", Description: "Lists the sessions of this conversation.",
		Input: object(nil, nil), Output: shape[sessionList](), ReadOnly: true, Idempotent: true,
		run: func(ctx context.Context, c *call) (Answer, error) {
			boxes, err := c.core.Threads().Sandboxes(ctx, c.Thread)
			list := sessionList{Sessions: []session{}}
			for _, b := range boxes {
				s := session{
					ActiveSession: ActiveSession{string(b.ID), runtimeOf(b), status(b)}, Dependencies: b.Spec.Dependencies,
					CreatedAt: b.CreatedAt.UTC(), LastActivity: b.LastActiveAt.UTC(),
				}
				if s.Dependencies == nil {
					s.Dependencies = map[string]string{}
				}
				list.Sessions = append(list.Sessions, s)
			}
			return Answer{Value: list}, err
		},
	}
}
