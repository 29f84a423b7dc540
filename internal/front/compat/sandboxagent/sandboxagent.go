// Package sandboxagent is the dialect of sandbox-agent: the paths /threads/{id}/…,
// /sessions and /settings. A sandbox is a session, and errors are {"detail":"…"}, but for
// those of DELETE /sessions/{session_id}, which are {"error":"…"}. It has no rule
// about sandboxes: each handler makes one call of core, as those of /v1.
package sandboxagent

import (
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/agent/settings"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// below reports whether a path speaks the dialect.
func below(p string) bool {
	return strings.HasPrefix(p, "/threads/") || p == "/settings" || p == "/sessions" || strings.HasPrefix(p, "/sessions/")
}

// DownloadURL is where clients of the API at base get what a sandbox of a thread
// exported.
func DownloadURL(base string, b sandbox.Sandbox, name string) string {
	return base + "/threads/" + url.PathEscape(b.Spec.Thread) + "/files/download?session_id=" + string(b.ID) + "&path=" + url.QueryEscape(name)
}

func refuse(w http.ResponseWriter, err error) {
	info := front.Public(err)
	front.SetErrorHeaders(w.Header(), err)
	front.WriteJSON(w, front.RowOf(info.Kind).HTTP, Error{info.Message})
}

// Session is a sandbox in sandbox-agent's words.
type Session struct {
	SessionID     string    `json:"session_id"`
	ContainerID   string    `json:"container_id" doc:"Of this incarnation of the session, shortened."`
	ContainerName string    `json:"container_name"`
	Runtime       string    `json:"runtime"`
	Status        string    `json:"status" enum:"starting,running,dead"`
	ThreadID      *string   `json:"thread_id"`
	CreatedAt     time.Time `json:"created_at"`
	LastActivity  time.Time `json:"last_activity"`
}

// ThreadDeleted says that the end of a thread has begun.
type ThreadDeleted struct {
	Status string `json:"status" enum:"deleted"`
}

// Deleted names a session that is gone.
type Deleted struct {
	OK        bool   `json:"ok"`
	SessionID string `json:"session_id"`
}

// Upload is a file that was stored.
type Upload struct {
	Name string `json:"name" doc:"Without what would lead elsewhere."`
	Path string `json:"path" doc:"On the daemon's host; sandboxes of the thread can import it."`
	Size int64  `json:"size"`
}

// dialect has the handlers.
type dialect struct {
	*httpapi.Server

	ended func(ctx context.Context, thread string) error
}

// Register returns what adds the dialect to a server. ended is told of a thread that
// is deleted, whose conversation with the agent ends too.
func Register(of *settings.Settings, ended func(ctx context.Context, thread string) error) func(*httpapi.Server) {
	return func(s *httpapi.Server) { register(s, of, ended) }
}

func register(s *httpapi.Server, of *settings.Settings, ended func(ctx context.Context, thread string) error) {
	d := &dialect{s, ended}
	words := s.AddDialect(httpapi.Dialect{
		Name: "sandbox-agent", Description: "The paths of sandbox-agent, with its shapes.",
		Prefix: "Agent", ErrorShape: Error{}, Below: below, Refuse: refuse,
	})
	missing := s.JSON(Missing{})
	file := httpapi.Media("application/octet-stream", nil)
	file["application/zip"] = httpapi.Media("application/zip", nil)["application/zip"]
	// The document has this shape once, as the error of sandboxed.
	sessionFailed := httpapi.Media("application/json", &huma.Schema{Ref: "#/components/schemas/SandboxedError"})
	// The agent's threads are the same, so that clients of its API find the files of a
	// thread below it too.
	for _, at := range []struct{ prefix, id string }{{"", "sandbox-agent-"}, {"/agent", "sandbox-agent-below-agent-"}} {
		upload := at.prefix + "/threads/{thread_id}/files/upload"
		s.AddRoutes(words,
			httpapi.Route{
				ID: at.id + "download", Pattern: "GET " + at.prefix + "/threads/{thread_id}/files/download", Summary: "Download an exported file, or directory as zip",
				Query: []httpapi.Query{
					{Name: "session_id", Type: huma.TypeString, Required: true}, {Name: "path", Type: huma.TypeString, Required: true},
				},
				Answers: map[int]httpapi.Content{http.StatusOK: file, http.StatusUnprocessableEntity: missing}, Serve: d.download,
			},
			httpapi.Route{
				ID: at.id + "upload", Pattern: "POST " + upload, Summary: "Store files for the sandboxes of a thread",
				Body: httpapi.Media("multipart/form-data", &huma.Schema{
					Type: huma.TypeObject, Required: []string{"files"},
					Properties: map[string]*huma.Schema{"files": {Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString, Format: "binary"}}},
				}),
				Answers: map[int]httpapi.Content{http.StatusOK: s.JSONList(Upload{}), http.StatusUnprocessableEntity: missing}, Serve: d.upload,
			},
		)
		s.Documented(http.MethodPost, upload).RequestBody.Required = true
	}
	s.AddRoutes(words,
		httpapi.Route{
			ID: "sandbox-agent-delete-thread", Pattern: "DELETE /threads/{thread_id}", Summary: "End a thread: its conversation, and in the background its sandboxes and uploads",
			Answers: map[int]httpapi.Content{http.StatusOK: s.JSON(ThreadDeleted{})}, Serve: d.deleteThread,
		},
		httpapi.Route{
			ID: "sandbox-agent-sessions", Pattern: "GET /sessions", Summary: "List sessions, newest first",
			Answers: map[int]httpapi.Content{http.StatusOK: s.JSONList(Session{})}, Serve: d.sessions,
		},
		httpapi.Route{
			ID: "sandbox-agent-delete-session", Pattern: "DELETE /sessions/{session_id}", Summary: "Destroy a session",
			Answers: map[int]httpapi.Content{
				http.StatusOK: s.JSON(Deleted{}), http.StatusNotFound: sessionFailed, http.StatusInternalServerError: sessionFailed,
			},
			Serve: d.deleteSession,
		},
	)
	d.settingsRoutes(words, of)
}

// Error is the body of every error but those of a session's end.
type Error struct {
	Detail string `json:"detail"`
}

// sessionError is the error of DELETE /sessions/{session_id}.
type sessionError struct {
	Error string `json:"error"`
}

// missingField is how sandbox-agent says that a request lacks something.
type missingField struct {
	Type  string   `json:"type"`
	Loc   []string `json:"loc"`
	Msg   string   `json:"msg"`
	Input any      `json:"input"`
}

// Missing is an error of a request that lacks something.
type Missing struct {
	Detail []missingField `json:"detail" nullable:"false"`
}

func writeMissing(w http.ResponseWriter, where string, names ...string) {
	fields := make([]missingField, len(names))
	for i, name := range names {
		fields[i] = missingField{Type: "missing", Loc: []string{where, name}, Msg: "Field required"}
	}
	front.WriteJSON(w, http.StatusUnprocessableEntity, Missing{fields})
}

func (d *dialect) download(w http.ResponseWriter, r *http.Request) error {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return errs.E(errs.Invalid, "malformed query")
	}
	var missing []string
	for _, name := range []string{"session_id", "path"} {
		if !q.Has(name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		writeMissing(w, "query", missing...)
		return nil
	}
	file, err := d.Core.Exports().OpenInThread(r.Context(), r.PathValue("thread_id"), q.Get("session_id"), q.Get("path"), "")
	switch {
	case errors.Is(err, errs.Invalid):
		front.WriteJSON(w, http.StatusBadRequest, Error{"Invalid path"})
		return nil
	case errors.Is(err, errs.NotFound), errors.Is(err, errs.WrongState):
		front.WriteJSON(w, http.StatusForbidden, Error{d.Said(r.Context(), err)})
		return nil
	case err != nil:
		return err
	}
	d.SendDownload(w, r, file)
	return nil
}

func (d *dialect) upload(w http.ResponseWriter, r *http.Request) error {
	front.StreamedBody(r)
	parts, err := r.MultipartReader()
	if err != nil {
		writeMissing(w, "body", "files")
		return nil
	}
	stored := []Upload{}
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errs.E(errs.Invalid, "the multipart body is malformed or ended early").Because(err)
		}
		name, isFile := uploadName(part)
		if part.FormName() != "files" || !isFile {
			continue // and skipped by the next one
		}
		u, err := d.Core.Threads().Upload(r.Context(), r.PathValue("thread_id"), name, front.Upload(part))
		if err != nil {
			return err
		}
		stored = append(stored, Upload{Name: u.Name, Path: u.Path, Size: u.Size})
		if len(stored) > maxUploads {
			return errs.E(errs.TooLarge, "more than %d files in one request", maxUploads)
		}
	}
	if len(stored) == 0 {
		writeMissing(w, "body", "files")
		return nil
	}
	front.WriteJSON(w, http.StatusOK, stored)
	return nil
}

// maxUploads bounds the files of one request.
const maxUploads = 1000

// uploadName is the name that a client gave a file, with its directories, which
// package multipart takes away.
func uploadName(part *multipart.Part) (name string, isFile bool) {
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return "", false
	}
	name, isFile = params["filename"]
	return name, isFile
}

func (d *dialect) deleteThread(w http.ResponseWriter, r *http.Request) error {
	thread := r.PathValue("thread_id")
	if err := errors.Join(d.Core.Threads().End(r.Context(), thread), d.ended(r.Context(), thread)); err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, ThreadDeleted{"deleted"})
	return nil
}

var statuses = map[sandbox.State]string{sandbox.Creating: "starting", sandbox.Running: "running", sandbox.Sleeping: "running"} // it wakes on use

func (d *dialect) sessions(w http.ResponseWriter, r *http.Request) error {
	q := lifecycle.Query{
		States: []sandbox.State{sandbox.Creating, sandbox.Running, sandbox.Sleeping, sandbox.Stopped}, Limit: 1000,
	}
	list := []Session{}
	for {
		page, err := d.Core.Sandboxes().List(r.Context(), q)
		if err != nil {
			return err
		}
		for _, b := range page.Sandboxes {
			list = append(list, sessionOf(b))
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			front.WriteJSON(w, http.StatusOK, list)
			return nil
		}
	}
}

func sessionOf(b sandbox.Sandbox) Session {
	uid := string(b.UID)
	s := Session{
		SessionID: string(b.ID), ContainerID: uid[max(0, len(uid)-12):], ContainerName: "sandbox-" + string(b.ID),
		Runtime: cmp.Or(b.Spec.Runtime, "python"), Status: cmp.Or(statuses[b.State], "dead"),
		CreatedAt: b.CreatedAt.UTC(), LastActivity: b.LastActiveAt.UTC(),
	}
	if b.Spec.Thread != "" {
		s.ThreadID = &b.Spec.Thread
	}
	return s
}

func (d *dialect) deleteSession(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("session_id")
	err := d.Core.Sandboxes().Destroy(r.Context(), id, false)
	switch {
	case errors.Is(err, errs.NotFound), errors.Is(err, errs.Invalid):
		front.WriteJSON(w, http.StatusNotFound, sessionError{"Session not found" + scope.Fate(err)})
		return nil
	case err != nil:
		d.LogInternal(r.Context(), err)
		front.WriteJSON(w, http.StatusInternalServerError, sessionError{"Failed to stop session"})
		return nil
	}
	front.WriteJSON(w, http.StatusOK, Deleted{true, id})
	return nil
}
