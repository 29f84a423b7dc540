package rest

import (
	"cmp"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// The dialect of sandbox-agent: the paths /threads/{id}/… and /sessions. A
// sandbox is a session, and errors are {"detail":"…"}, but for those of
// DELETE /sessions/{session_id}, which are {"error":"…"}.

// agentPath reports whether a path speaks the dialect.
func agentPath(p string) bool {
	return strings.HasPrefix(p, "/threads/") || p == "/sessions" || strings.HasPrefix(p, "/sessions/")
}

type agentError struct {
	Detail string `json:"detail"`
}

func writeAgentError(w http.ResponseWriter, err error) {
	info := errs.Public(err)
	front.SetErrorHeaders(w.Header(), err)
	front.WriteJSON(w, front.RowOf(info.Kind).HTTP, agentError{info.Message})
}

// AgentSession is a sandbox in sandbox-agent's words.
type AgentSession struct {
	SessionID     string    `json:"session_id"`
	ContainerID   string    `json:"container_id" doc:"Of this incarnation of the session, shortened."`
	ContainerName string    `json:"container_name"`
	Runtime       string    `json:"runtime"`
	Status        string    `json:"status" enum:"starting,running,dead"`
	ThreadID      *string   `json:"thread_id"`
	CreatedAt     time.Time `json:"created_at"`
	LastActivity  time.Time `json:"last_activity"`
}

// AgentThreadDeleted says that the end of a thread has begun.
type AgentThreadDeleted struct {
	Status string `json:"status" enum:"deleted"`
}

// AgentDeleted names a session that is gone.
type AgentDeleted struct {
	OK        bool   `json:"ok"`
	SessionID string `json:"session_id"`
}

// AgentUpload is a file that was stored.
type AgentUpload struct {
	Name string `json:"name" doc:"Without what would lead elsewhere."`
	Path string `json:"path" doc:"On the daemon's host; sandboxes of the thread can import it."`
	Size int64  `json:"size"`
}

func (d *Door) sandboxAgentRoutes() {
	d.agentRoute("sandbox-agent-download", "GET /threads/{thread_id}/files/download", "Download an exported file, or directory as zip", "session_id", d.agentDownload)
	d.agentRoute("sandbox-agent-upload", "POST /threads/{thread_id}/files/upload", "Store files for the sandboxes of a thread", "", d.agentUpload)
	d.agentRoute("sandbox-agent-delete-thread", "DELETE /threads/{thread_id}", "Destroy the sandboxes and uploads of a thread, in the background", "", d.agentDeleteThread)
	d.agentRoute("sandbox-agent-sessions", "GET /sessions", "List sessions, newest first", "", d.agentSessions)
	d.agentRoute("sandbox-agent-delete-session", "DELETE /sessions/{session_id}", "Destroy a session", "", d.agentDeleteSession)

	api := d.api.OpenAPI()
	api.Paths["/threads/{thread_id}/files/download"].Get.Responses["200"].Content = content("application/octet-stream", nil)
	upload := api.Paths["/threads/{thread_id}/files/upload"].Post
	upload.Responses["200"].Content = content("application/json", &huma.Schema{Type: huma.TypeArray, Items: d.schema(AgentUpload{}, "AgentUpload")})
	upload.RequestBody = &huma.RequestBody{Required: true, Content: content("multipart/form-data", &huma.Schema{
		Type: huma.TypeObject, Required: []string{"files"},
		Properties: map[string]*huma.Schema{"files": {Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString, Format: "binary"}}},
	})}
	api.Paths["/sessions"].Get.Responses["200"].Content = content("application/json", &huma.Schema{Type: huma.TypeArray, Items: d.schema(AgentSession{}, "AgentSession")})
}

// agentRoute adds an endpoint that reads and writes for itself. Query names a
// required parameter beside path.
func (d *Door) agentRoute(id, pattern, summary, query string, h func(http.ResponseWriter, *http.Request) error) {
	d.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			d.Error(w, r, err)
		}
	})
	method, path, _ := strings.Cut(pattern, " ")
	op := &huma.Operation{
		OperationID: id, Method: method, Path: path, Tags: []string{"sandbox-agent"}, Summary: summary,
		Responses: map[string]*huma.Response{
			"200":     {Description: "OK"},
			"default": {Description: "Error", Content: content("application/json", d.schema(agentError{}, "AgentError"))},
		},
	}
	text := &huma.Schema{Type: huma.TypeString}
	for _, name := range []string{"thread_id", "session_id"} {
		if strings.Contains(path, "{"+name+"}") {
			op.Parameters = append(op.Parameters, &huma.Param{Name: name, In: "path", Required: true, Schema: text})
		}
	}
	if query != "" {
		op.Parameters = append(op.Parameters,
			&huma.Param{Name: query, In: "query", Required: true, Schema: text}, &huma.Param{Name: "path", In: "query", Required: true, Schema: text})
	}
	d.api.OpenAPI().AddOperation(op)
}

// missingField is how sandbox-agent says that a request lacks something.
type missingField struct {
	Type  string   `json:"type"`
	Loc   []string `json:"loc"`
	Msg   string   `json:"msg"`
	Input any      `json:"input"`
}

// AgentMissing is an error of a request that lacks something.
type AgentMissing struct {
	Detail []missingField `json:"detail" nullable:"false"`
}

func writeMissing(w http.ResponseWriter, where string, names ...string) {
	fields := make([]missingField, len(names))
	for i, name := range names {
		fields[i] = missingField{Type: "missing", Loc: []string{where, name}, Msg: "Field required"}
	}
	front.WriteJSON(w, http.StatusUnprocessableEntity, AgentMissing{fields})
}

func (d *Door) agentDownload(w http.ResponseWriter, r *http.Request) error {
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
	file, err := d.core.Exports().OpenInThread(r.Context(), r.PathValue("thread_id"), q.Get("session_id"), q.Get("path"), "")
	switch {
	case errors.Is(err, errs.Invalid):
		front.WriteJSON(w, http.StatusBadRequest, agentError{"Invalid path"})
		return nil
	case errors.Is(err, errs.NotFound), errors.Is(err, errs.WrongState):
		front.WriteJSON(w, http.StatusForbidden, agentError{d.said(r.Context(), err)})
		return nil
	case err != nil:
		return err
	}
	d.sendExport(w, r, file)
	return nil
}

func (d *Door) agentUpload(w http.ResponseWriter, r *http.Request) error {
	front.StreamedBody(r)
	parts, err := r.MultipartReader()
	if err != nil {
		writeMissing(w, "body", "files")
		return nil
	}
	stored := []AgentUpload{}
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
		u, err := d.core.Upload(r.Context(), r.PathValue("thread_id"), name, &uploadReader{r: part})
		if err != nil {
			return err
		}
		stored = append(stored, AgentUpload{Name: u.Name, Path: u.Path, Size: u.Size})
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

func (d *Door) agentDeleteThread(w http.ResponseWriter, r *http.Request) error {
	if err := d.core.EndThread(r.Context(), r.PathValue("thread_id")); err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, AgentThreadDeleted{"deleted"})
	return nil
}

var agentStatus = map[sandbox.State]string{sandbox.Creating: "starting", sandbox.Running: "running"}

func (d *Door) agentSessions(w http.ResponseWriter, r *http.Request) error {
	q := core.Query{
		States: []sandbox.State{sandbox.Creating, sandbox.Running, sandbox.Sleeping, sandbox.Stopped}, Limit: 1000,
	}
	list := []AgentSession{}
	for {
		page, err := d.core.List(r.Context(), q)
		if err != nil {
			return err
		}
		for _, b := range page.Sandboxes {
			list = append(list, agentSession(b))
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			front.WriteJSON(w, http.StatusOK, list)
			return nil
		}
	}
}

func agentSession(b sandbox.Sandbox) AgentSession {
	uid := string(b.UID)
	s := AgentSession{
		SessionID: string(b.ID), ContainerID: uid[max(0, len(uid)-12):], ContainerName: "sandbox-" + string(b.ID),
		Runtime: cmp.Or(b.Spec.Runtime, "python"), Status: cmp.Or(agentStatus[b.State], "dead"),
		CreatedAt: b.CreatedAt.UTC(), LastActivity: b.LastActiveAt.UTC(),
	}
	if b.Spec.Thread != "" {
		s.ThreadID = &b.Spec.Thread
	}
	return s
}

func (d *Door) agentDeleteSession(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("session_id")
	err := d.core.Destroy(r.Context(), id, false)
	switch {
	case errors.Is(err, errs.NotFound), errors.Is(err, errs.Invalid):
		front.WriteJSON(w, http.StatusNotFound, sandboxedError{"Session not found" + scope.Fate(err)})
		return nil
	case err != nil:
		d.logInternal(r.Context(), err)
		front.WriteJSON(w, http.StatusInternalServerError, sandboxedError{"Failed to stop session"})
		return nil
	}
	front.WriteJSON(w, http.StatusOK, AgentDeleted{true, id})
	return nil
}
