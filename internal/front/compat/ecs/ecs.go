// Package ecs is the dialect of ecs-sandbox: a sandbox is a session, its times
// are milliseconds, its commands run one after another in one shell, and its
// errors are {"error":"code","detail":"…"}. The header X-Sandbox-Secret selects
// it where another system has the same path. It has no rule about sandboxes:
// each handler makes one call of core, as those of /v1.
package ecs

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	// SecretHeader has the token of the dialect's clients.
	SecretHeader = "X-Sandbox-Secret" //nolint:gosec // a header's name
	// Interface is the way through which the dialect makes sandboxes.
	Interface admission.Interface = "ecs-sandbox"

	// session is the session shell of everything that the dialect runs.
	session    = "ecs"
	defaultTTL = 30 * time.Minute
)

// dialect has the handlers.
type dialect struct{ *httpapi.Server }

// Register adds the dialect to s, after the one whose paths it shares.
func Register(s *httpapi.Server) {
	d := &dialect{s}
	words := s.AddDialect(httpapi.Dialect{
		Name:        "ecs-sandbox",
		Description: "The paths of ecs-sandbox, with its shapes. The header X-Sandbox-Secret selects them where sandboxed has the same.",
		Prefix:      "ECS", ErrorShape: ecsError{}, Below: below, Speaks: speaks, Refuse: refuse, RefuseMethod: refuseMethod,
	})
	accepted := s.JSON(Accepted{})
	s.AddRoutes(words,
		httpapi.Route{
			ID: "ecs-create", Pattern: "POST /sandbox", Summary: "Create a session",
			Body: s.JSON(Create{}), Answers: map[int]httpapi.Content{http.StatusCreated: s.JSON(Created{})}, Serve: d.create,
		},
		httpapi.Route{
			ID: "ecs-delete", Pattern: "DELETE /sandbox/{id}", Summary: "Destroy a session",
			Answers: map[int]httpapi.Content{http.StatusOK: s.JSON(Destroyed{})}, Serve: d.destroy,
		},
		httpapi.Route{
			ID: "ecs-exec", Pattern: "POST /sandbox/{id}/exec", Summary: "Run a command in the session's shell", Claims: d.claimsExec,
			Body: s.JSON(Exec{}),
			Answers: map[int]httpapi.Content{
				http.StatusOK: s.JSON(Done{}), http.StatusAccepted: accepted, http.StatusRequestTimeout: s.JSON(GoesOn{}),
			},
			Serve: d.exec,
		},
		httpapi.Route{
			ID: "ecs-event", Pattern: "GET /sandbox/{id}/events/{seq}", Summary: "An operation: 202 until it has ended",
			Answers: map[int]httpapi.Content{http.StatusOK: s.JSON(Event{}), http.StatusAccepted: accepted}, Serve: d.event,
		},
		httpapi.Route{
			ID: "ecs-history", Pattern: "GET /sandbox/{id}/history", Summary: "The operations of a session by their seq",
			Query: []httpapi.Query{
				{Name: "after_seq", Type: huma.TypeInteger, Doc: "Only operations behind this one."},
				{Name: "limit", Type: huma.TypeInteger, Doc: "At most so many, 1 to 999; default 50."},
			},
			Answers: map[int]httpapi.Content{http.StatusOK: s.JSON(History{})}, Serve: d.history,
		},
		httpapi.Route{
			ID: "ecs-read-file", Pattern: "GET /sandbox/{id}/fs", Summary: "Read a file",
			Query:   []httpapi.Query{{Name: "path", Type: huma.TypeString, Doc: "The file.", Required: true}},
			Answers: map[int]httpapi.Content{http.StatusOK: s.JSON(File{})}, Serve: d.readFile,
		},
		httpapi.Route{
			ID: "ecs-write-file", Pattern: "POST /sandbox/{id}/fs", Summary: "Write a file",
			Body: s.JSON(FileInput{}), Answers: map[int]httpapi.Content{http.StatusCreated: s.JSON(File{})}, Serve: d.writeFile,
		},
		httpapi.Route{
			ID: "ecs-delete-file", Pattern: "DELETE /sandbox/{id}/fs", Summary: "Delete a file",
			Query: []httpapi.Query{{Name: "path", Type: huma.TypeString, Doc: "The file, for clients that send no body with DELETE."}},
			Body:  s.JSON(Path{}), Answers: map[int]httpapi.Content{http.StatusOK: s.JSON(Deleted{})}, Serve: d.removeFile,
		},
		httpapi.Route{
			ID: "ecs-list-files", Pattern: "GET /sandbox/{id}/fs/list", Summary: "List a directory",
			Query:   []httpapi.Query{{Name: "path", Type: huma.TypeString, Doc: "The directory; default /workspace."}},
			Answers: map[int]httpapi.Content{http.StatusOK: s.JSON(Dir{})}, Serve: d.listFiles,
		},
		httpapi.Route{
			ID: "ecs-git-clone", Pattern: "POST /sandbox/{id}/git/clone", Summary: "Clone a repository",
			Body: s.JSON(Clone{}), Answers: map[int]httpapi.Content{http.StatusAccepted: accepted}, Serve: d.clone,
		},
		httpapi.Route{
			ID: "ecs-git-commit", Pattern: "POST /sandbox/{id}/git/commit", Summary: "Commit in the last clone",
			Body: s.JSON(Commit{}), Answers: map[int]httpapi.Content{http.StatusAccepted: accepted}, Serve: d.commit,
		},
	)
}

// below reports whether the header selects the dialect for requests of a path.
func below(p string) bool {
	return p == "/sandbox" || p == "/sandboxes" || strings.HasPrefix(p, "/sandbox/")
}

// speaks reports whether a request speaks the dialect: some paths are its alone.
func speaks(r *http.Request) bool {
	if rest, ok := strings.CutPrefix(r.URL.Path, "/sandbox/"); ok {
		_, rest, _ = strings.Cut(rest, "/")
		part, _, _ := strings.Cut(rest, "/")
		switch part {
		case "events", "history", "fs", "git":
			return true
		}
	}
	return r.Header.Get(SecretHeader) != "" && below(r.URL.Path)
}

// claimsExec is speaks for a path whose body tells the dialect too: a command
// that is text is for this one's shell.
func (d *dialect) claimsExec(r *http.Request) bool {
	if speaks(r) {
		return true
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, d.BodyLimit+1))
	rest := io.Reader(r.Body)
	if err != nil {
		rest = failed{err}
	}
	r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(data), rest))
	var is struct {
		Cmd any `json:"cmd"`
	}
	if err != nil || int64(len(data)) > d.BodyLimit || json.Unmarshal(data, &is) != nil {
		return false // who reads it tells what is wrong with it
	}
	_, text := is.Cmd.(string)
	return text
}

// failed is a body whose rest could not be read.
type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }

// ecsError is the body of every error. The document names it EcsError.
type ecsError struct {
	Error  string `json:"error" example:"session_not_found"`
	Detail string `json:"detail"`
}

// fault gives an error the dialect's own status and code.
type fault struct {
	status int
	code   string
	err    error
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

func refuse(w http.ResponseWriter, err error) {
	info := front.Public(err)
	front.SetErrorHeaders(w.Header(), err)
	row := front.RowOf(info.Kind)
	status, code := row.HTTP, row.Code
	var own *fault
	switch {
	case errors.As(err, &own):
		status, code = own.status, own.code
	case info.Kind == errs.NotFound:
		code = "session_not_found"
	case info.Kind == errs.OverQuota:
		code = "too_many_requests" // of requests, commands or wrong tokens
	}
	detail := info.Message
	if info.Hint != "" && info.Kind != errs.Unauthenticated {
		detail += ": " + info.Hint
	}
	front.WriteJSON(w, status, ecsError{Error: code, Detail: detail})
}

func refuseMethod(w http.ResponseWriter, err error) {
	refuse(w, &fault{http.StatusMethodNotAllowed, "method_not_allowed", err})
}

// noRoom is the dialect's word for a create that finds no place.
func noRoom(err error) error {
	if kind := errs.KindOf(err); kind == errs.Exhausted || kind == errs.OverQuota {
		return &fault{http.StatusServiceUnavailable, "max_containers_reached", err}
	}
	return err
}

// notActive is the dialect's word for a sandbox that does not run.
func notActive(err error) error {
	if errs.KindOf(err) == errs.WrongState {
		return &fault{http.StatusNotFound, "session_not_active", err}
	}
	return err
}

// Create makes a session.
type Create struct {
	ID         string         `json:"id"`
	TTLSeconds *int64         `json:"ttl_seconds,omitempty" doc:"Default 1800: destroyed after that long without use."`
	Image      string         `json:"image,omitempty"`
	Metadata   map[string]any `json:"metadata,omitempty"`

	Isolation string `json:"isolation,omitempty" enum:"gvisor,container" doc:"Cubby's own."`
}

// Created is a session that is there.
type Created struct {
	ID        string         `json:"id"`
	Status    string         `json:"status"`
	CreatedAt int64          `json:"created_at" doc:"Unix milliseconds, as all times."`
	ExpiresAt int64          `json:"expires_at" doc:"Unless it is used before."`
	Metadata  map[string]any `json:"metadata"`
}

func (d *dialect) create(w http.ResponseWriter, r *http.Request) error {
	var in Create
	if err := d.ReadBody(r, &in); err != nil {
		return err
	}
	if in.ID == "" {
		return errs.E(errs.Invalid, "id: required")
	}
	ttl := defaultTTL
	if in.TTLSeconds != nil {
		var err error
		if ttl, err = front.Seconds("ttl_seconds", float64(*in.TTLSeconds)); err != nil {
			return err
		}
		if ttl == 0 {
			return errs.E(errs.Invalid, "ttl_seconds: at least 1")
		}
	}
	spec := sandbox.Spec{
		Image: in.Image, Isolation: sandbox.Isolation(in.Isolation), IdlePolicy: sandbox.IdleDestroy,
		Metadata: make(map[string]string, len(in.Metadata)),
	}
	if spec.Isolation == "" {
		spec.Isolation = d.Core.Sandboxes().Defaults().Isolation
	}
	if spec.Isolation == sandbox.GVisor {
		spec.User = "root" // its users install packages
	}
	for key, value := range in.Metadata {
		text, ok := value.(string)
		if !ok {
			raw, err := front.PlainJSON(value)
			if err != nil {
				return errs.E(errs.Invalid, "metadata: not JSON").Because(err)
			}
			text = strings.TrimSpace(string(raw))
		}
		spec.Metadata[key] = text
	}
	b, err := d.Core.Sandboxes().Create(r.Context(), lifecycle.CreateRequest{Interface: Interface, ID: in.ID, Spec: spec, IdleTimeout: &ttl})
	if errs.KindOf(err) == errs.Conflict {
		return &fault{http.StatusConflict, "session_already_active", err}
	}
	if err != nil {
		return noRoom(err)
	}
	if in.Metadata == nil {
		in.Metadata = map[string]any{}
	}
	front.WriteJSON(w, http.StatusCreated, Created{
		ID: string(b.ID), Status: "active", CreatedAt: b.CreatedAt.UnixMilli(), ExpiresAt: b.CreatedAt.UnixMilli() + ttl.Milliseconds(),
		Metadata: in.Metadata,
	})
	return nil
}

// Destroyed says that a session is gone.
type Destroyed struct {
	Status string `json:"status" enum:"destroyed"`
}

func (d *dialect) destroy(w http.ResponseWriter, r *http.Request) error {
	if err := d.Core.Sandboxes().Destroy(r.Context(), r.PathValue("id"), false); err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, Destroyed{"destroyed"})
	return nil
}
