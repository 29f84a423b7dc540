package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// The dialect of ecs-sandbox: a sandbox is a session, its times are
// milliseconds, its commands run one after another in one shell, and its errors
// are {"error":"code","detail":"…"}. The header X-Sandbox-Secret selects it
// where sandboxed has the same path.

const (
	ecsSecret = "X-Sandbox-Secret" //nolint:gosec // a header's name
	// ecsSession is the session shell of everything that the dialect runs.
	ecsSession = "ecs"
	ecsTTL     = 30 * time.Minute
)

// ecsSpoken reports whether a request speaks the dialect.
func ecsSpoken(r *http.Request) bool {
	rest, ok := strings.CutPrefix(r.URL.Path, "/sandbox/")
	if ok {
		_, rest, _ = strings.Cut(rest, "/")
	}
	part, _, _ := strings.Cut(rest, "/")
	switch part {
	case "events", "history", "fs", "git":
		return ok
	}
	return r.Header.Get(ecsSecret) != "" && sandboxedPath(r.URL.Path)
}

type ecsError struct {
	Error  string `json:"error" example:"session_not_found"`
	Detail string `json:"detail"`
}

// ecsFault gives an error the dialect's own status and code.
type ecsFault struct {
	status int
	code   string
	err    error
}

func (f *ecsFault) Error() string { return f.err.Error() }
func (f *ecsFault) Unwrap() error { return f.err }

func writeECSError(w http.ResponseWriter, err error) {
	info := errs.Public(err)
	front.SetErrorHeaders(w.Header(), err)
	row := front.RowOf(info.Kind)
	status, code := row.HTTP, row.Code
	var fault *ecsFault
	switch {
	case errors.As(err, &fault):
		status, code = fault.status, fault.code
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

// noRoom is the dialect's word for a create that finds no place.
func noRoom(err error) error {
	if kind := errs.KindOf(err); kind == errs.Exhausted || kind == errs.OverQuota {
		return &ecsFault{http.StatusServiceUnavailable, "max_containers_reached", err}
	}
	return err
}

// notActive is the dialect's word for a sandbox that does not run.
func notActive(err error) error {
	if errs.KindOf(err) == errs.WrongState {
		return &ecsFault{http.StatusNotFound, "session_not_active", err}
	}
	return err
}

func (d *Door) ecsRoutes() {
	d.ecsRoute("ecs-event", "GET /sandbox/{id}/events/{seq}", "An operation: 202 until it has ended", nil, ECSEvent{}, d.ecsEvent)
	d.ecsRoute("ecs-history", "GET /sandbox/{id}/history", "The operations of a session by their seq", nil, ECSHistory{}, d.ecsHistory)
	d.ecsRoute("ecs-read-file", "GET /sandbox/{id}/fs", "Read a file", nil, ECSFile{}, d.ecsReadFile)
	d.ecsRoute("ecs-write-file", "POST /sandbox/{id}/fs", "Write a file", ECSFileInput{}, ECSFile{}, d.ecsWriteFile)
	d.ecsRoute("ecs-delete-file", "DELETE /sandbox/{id}/fs", "Delete a file", ECSPath{}, nil, d.ecsDeleteFile)
	d.ecsRoute("ecs-list-files", "GET /sandbox/{id}/fs/list", "List a directory", nil, ECSDir{}, d.ecsListFiles)
	d.ecsRoute("ecs-git-clone", "POST /sandbox/{id}/git/clone", "Clone a repository", ECSClone{}, ECSAccepted{}, d.ecsClone)
	d.ecsRoute("ecs-git-commit", "POST /sandbox/{id}/git/commit", "Commit in the last clone", ECSCommit{}, ECSAccepted{}, d.ecsCommit)
}

// ecsRoute adds an endpoint that only this dialect has.
func (d *Door) ecsRoute(id, pattern, summary string, body, answer any, h func(http.ResponseWriter, *http.Request) error) {
	d.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			d.Error(w, r, err)
		}
	})
	method, path, _ := strings.Cut(pattern, " ")
	op := &huma.Operation{
		OperationID: id, Method: method, Path: path, Tags: []string{"ecs-sandbox"}, Summary: summary,
		Responses: map[string]*huma.Response{
			"200":     {Description: "OK"},
			"default": {Description: "Error", Content: content("application/json", d.schema(ecsError{}, "ECSError"))},
		},
	}
	if answer != nil {
		op.Responses["200"].Content = content("application/json", d.schema(answer, ""))
	}
	if body != nil {
		op.RequestBody = &huma.RequestBody{Content: content("application/json", d.schema(body, ""))}
	}
	for _, name := range []string{"id", "seq"} {
		if strings.Contains(path, "{"+name+"}") {
			op.Parameters = append(op.Parameters, &huma.Param{Name: name, In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}})
		}
	}
	d.api.OpenAPI().AddOperation(op)
}

// spoken serves a path that both dialects have.
func spoken(ecs, sandboxed func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if ecsSpoken(r) {
			return ecs(w, r)
		}
		return sandboxed(w, r)
	}
}

// spokenExec is spoken for a path whose body tells the dialect too: a command
// that is text is for ecs-sandbox's shell, a list is sandboxed's.
func (d *Door) spokenExec(w http.ResponseWriter, r *http.Request) error {
	data, err := readAtMost(r.Body, d.limit)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(data))
	var is struct {
		Cmd any `json:"cmd"`
	}
	_ = json.Unmarshal(data, &is) // who reads it tells what is wrong with it
	if _, text := is.Cmd.(string); text && !ecsSpoken(r) {
		if err := d.ecsExec(w, r); err != nil {
			d.logInternal(r.Context(), err)
			writeECSError(w, err)
		}
		return nil
	}
	return spoken(d.ecsExec, d.sandboxedExec)(w, r)
}

// ECSCreate makes a session.
type ECSCreate struct {
	ID         string         `json:"id"`
	TTLSeconds *int64         `json:"ttl_seconds,omitempty" doc:"Default 1800: destroyed after that long without use."`
	Image      string         `json:"image,omitempty"`
	Metadata   map[string]any `json:"metadata,omitempty"`

	Isolation string `json:"isolation,omitempty" enum:"gvisor,container" doc:"Cubby's own."`
}

// ECSCreated is a session that is there.
type ECSCreated struct {
	ID        string         `json:"id"`
	Status    string         `json:"status"`
	CreatedAt int64          `json:"created_at" doc:"Unix milliseconds, as all times."`
	ExpiresAt int64          `json:"expires_at" doc:"Unless it is used before."`
	Metadata  map[string]any `json:"metadata"`
}

func (d *Door) ecsCreate(w http.ResponseWriter, r *http.Request) error {
	var in ECSCreate
	if err := d.body(r, &in); err != nil {
		return err
	}
	if in.ID == "" {
		return errs.E(errs.Invalid, "id: required")
	}
	ttl := ecsTTL
	if in.TTLSeconds != nil {
		var err error
		if ttl, err = seconds("ttl_seconds", float64(*in.TTLSeconds)); err != nil {
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
		spec.Isolation = d.core.Defaults().Isolation
	}
	if spec.Isolation == sandbox.GVisor {
		spec.User = "root" // its users install packages
	}
	for key, value := range in.Metadata {
		text, ok := value.(string)
		if !ok {
			raw, err := plainJSON(value)
			if err != nil {
				return errs.E(errs.Invalid, "metadata: not JSON").Because(err)
			}
			text = strings.TrimSpace(string(raw))
		}
		spec.Metadata[key] = text
	}
	b, err := d.core.Create(r.Context(), core.CreateRequest{Interface: core.ECSSandbox, ID: in.ID, Spec: spec, IdleTimeout: &ttl})
	if errs.KindOf(err) == errs.Conflict {
		return &ecsFault{http.StatusConflict, "session_already_active", err}
	}
	if err != nil {
		return noRoom(err)
	}
	if in.Metadata == nil {
		in.Metadata = map[string]any{}
	}
	front.WriteJSON(w, http.StatusCreated, ECSCreated{
		ID: string(b.ID), Status: "active", CreatedAt: b.CreatedAt.UnixMilli(), ExpiresAt: b.CreatedAt.UnixMilli() + ttl.Milliseconds(),
		Metadata: in.Metadata,
	})
	return nil
}

// ECSDestroyed says that a session is gone.
type ECSDestroyed struct {
	Status string `json:"status" enum:"destroyed"`
}

func (d *Door) ecsDelete(w http.ResponseWriter, r *http.Request) error {
	if err := d.core.Destroy(r.Context(), r.PathValue("id"), false); err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, ECSDestroyed{"destroyed"})
	return nil
}
