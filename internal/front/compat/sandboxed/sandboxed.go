// Package sandboxed is the dialect of sandboxed: the paths /sandbox… and
// /sandboxes with its field names, its compact JSON (its users cut the id out
// with sed, so exactly one key is named id) and its errors {"error":"…"}. It has
// no rule about sandboxes: each handler makes one call of core, as those of /v1.
package sandboxed

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Interface is the way through which the dialect makes sandboxes.
const Interface admission.Interface = "sandboxed"

// Limits are what sandboxed documents for its sandboxes: all processors, however
// many there are.
func Limits() sandbox.Limits {
	return sandbox.Limits{MemoryBytes: 10 << 30, CPUs: math.MaxInt32, PIDs: 1024}
}

// defaultExternalUser owns what a request does not ascribe to anybody.
const defaultExternalUser = "local"

// madeLabel marks the sandboxes that the dialect made. Relative paths of
// their files are below appDir, which they begin with.
const (
	madeLabel = "sandboxd.managed"
	appDir    = sandbox.WorkspaceDir + "/app"
)

// below reports whether a path speaks the dialect.
func below(p string) bool {
	return p == "/sandbox" || p == "/sandboxes" || p == "/preview-auth" || p == "/forward-auth" || strings.HasPrefix(p, "/sandbox/") || strings.HasPrefix(p, "/wake/")
}

type Error struct {
	Error string `json:"error"`
}

func refuse(w http.ResponseWriter, err error) {
	info := front.Public(err)
	front.SetErrorHeaders(w.Header(), err)
	message := info.Message
	if info.Hint != "" && info.Kind != errs.Unauthenticated {
		message += ": " + info.Hint
	}
	row := front.RowOf(info.Kind)
	if info.Kind == errs.LowMemory {
		message = row.Code // which sandboxed's clients compare
	}
	front.WriteJSON(w, row.HTTP, Error{Error: message})
}

// Row is a sandbox in sandboxed's words.
type Row struct {
	ID                  string    `json:"id"`
	Status              string    `json:"status" enum:"creating,running,stopped,error"`
	Image               string    `json:"image"`
	WorkspaceImg        string    `json:"workspace_img"`
	WorkspaceMnt        string    `json:"workspace_mnt"`
	ErrorMessage        string    `json:"error_message,omitempty"`
	Ports               []int     `json:"ports" nullable:"false"`
	CreatedAt           time.Time `json:"created_at"`
	UpdatedAt           time.Time `json:"updated_at"`
	LastActiveAt        int64     `json:"last_active_at" doc:"Unix seconds."`
	StoppedAt           *int64    `json:"stopped_at,omitempty" doc:"Unix seconds."`
	KeepaliveUntil      *int64    `json:"keepalive_until,omitempty" doc:"Unix seconds."`
	ContainerIP         string    `json:"container_ip"`
	ExternalUserID      string    `json:"external_user_id,omitempty"`
	ExternalProjectID   string    `json:"external_project_id,omitempty"`
	ExternalWorkspaceID string    `json:"external_workspace_id,omitempty"`
	Visibility          string    `json:"visibility" enum:"public,private"`
	IdlePolicy          string    `json:"idle_policy"`
}

// Detail is a row with what is true right now.
type Detail struct {
	Row
	LiveState *string  `json:"live_state" doc:"running, or null."`
	Runtime   *Runtime `json:"runtime,omitempty" doc:"Where it runs and was created with port 3000."`
}

var statuses = map[sandbox.State]string{
	sandbox.Creating: "creating", sandbox.Running: "running", sandbox.Sleeping: "stopped", sandbox.Stopped: "stopped",
	sandbox.Failed: "error", sandbox.Destroyed: "stopped",
}

func rowOf(b sandbox.Sandbox) Row {
	s := b.Spec
	row := Row{
		ID: string(b.ID), Status: statuses[b.State], Image: s.Image, WorkspaceMnt: sandbox.WorkspaceDir, ErrorMessage: scope.Fault(b),
		Ports: append([]int{}, s.Ports...), CreatedAt: b.CreatedAt.UTC(), UpdatedAt: b.UpdatedAt.UTC(), LastActiveAt: b.LastActiveAt.Unix(),
		ExternalUserID: s.External.UserID, ExternalProjectID: s.External.ProjectID, ExternalWorkspaceID: s.External.WorkspaceID,
		Visibility: string(s.Visibility), IdlePolicy: string(s.IdlePolicy),
	}
	if !b.StoppedAt.IsZero() && b.State != sandbox.Running {
		at := b.StoppedAt.Unix()
		row.StoppedAt = &at
	}
	if !s.KeptUntil.IsZero() {
		at := s.KeptUntil.Unix()
		row.KeepaliveUntil = &at
	}
	return row
}

// Input is what POST /sandbox takes; every field is optional.
type Input struct {
	ID         string            `json:"id,omitempty"`
	Ports      []int             `json:"ports,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	Visibility string            `json:"visibility,omitempty" enum:"public,private"`
	IdlePolicy string            `json:"idle_policy,omitempty" enum:"sleep,always_on"`
	External   *External         `json:"external,omitempty"`

	Image     string `json:"image,omitempty" doc:"Cubby's own. Default: dev where that was built, else the operator's default."`
	Isolation string `json:"isolation,omitempty" enum:"gvisor,container" doc:"Cubby's own."`

	// What cubby does not have is refused when it is asked for.
	Template     string `json:"template,omitempty"`
	TemplatePath string `json:"template_path,omitempty"`

	GitRemoteURL string `json:"git_remote_url,omitempty" doc:"Where tasks are pushed to."`
	FromSnapshot string `json:"from_snapshot,omitempty" doc:"A snapshot by its id or name."`
}

// External names an owner in the caller's own terms.
type External struct {
	UserID      string `json:"user_id,omitempty"`
	ProjectID   string `json:"project_id,omitempty"`
	WorkspaceID string `json:"workspace_id,omitempty"`
}

// Keepalive postpones the end of an idle sandbox.
type Keepalive struct {
	Until *int64 `json:"until,omitempty" doc:"Unix seconds, at most a day from now; default: as long as any use keeps it."`
}

// Kept is when a sandbox may be found idle at the earliest.
type Kept struct {
	ID             string `json:"id"`
	KeepaliveUntil *int64 `json:"keepalive_until" doc:"Unix seconds; null when it is never idle, or in use until further notice."`
}

// longestKeepalive is the longest lease of the dialect; longer ones are cut.
const longestKeepalive = 24 * time.Hour

// Woken is a sandbox that runs.
type Woken struct {
	ID             string `json:"id"`
	Status         string `json:"status" enum:"running"`
	WakeDurationMS int64  `json:"wake_duration_ms"`
}

// dialect has the handlers.
type dialect struct{ *httpapi.Server }

// Register adds the dialect to s.
func Register(s *httpapi.Server) {
	d := &dialect{s}
	words := s.AddDialect(httpapi.Dialect{
		Name: "sandboxed", Description: "The paths of sandboxed, with its shapes.",
		Prefix: "Sandboxed", ErrorShape: Error{}, Below: below, Refuse: refuse, RefuseMethod: refuseMethod, Root: root,
	})
	answer := func(status int, c httpapi.Content) map[int]httpapi.Content { return map[int]httpapi.Content{status: c} }
	result := s.JSON(Result{})
	result["text/plain"] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Description: "The output as it comes, when stream is true."}}
	s.AddRoutes(words,
		httpapi.Route{
			ID: "sandboxed-create", Pattern: "POST /sandbox", Summary: "Create a sandbox",
			Body: s.JSON(Input{}), Answers: answer(http.StatusCreated, s.JSON(Row{})), Serve: d.create,
		},
		httpapi.Route{
			ID: "sandboxed-list", Pattern: "GET /sandboxes", Summary: "List all sandboxes, newest first",
			Answers: answer(http.StatusOK, s.JSONList(Row{})), Serve: d.list,
		},
		httpapi.Route{
			ID: "sandboxed-get", Pattern: "GET /sandbox/{id}", Summary: "Get a sandbox",
			Answers: answer(http.StatusOK, s.JSON(Detail{})), Serve: d.get,
		},
		httpapi.Route{
			ID: "sandboxed-delete", Pattern: "DELETE /sandbox/{id}", Summary: "Destroy a sandbox and keep its files for the next one with this id",
			Answers: answer(http.StatusNoContent, nil), Serve: d.destroy,
		},
		httpapi.Route{
			ID: "sandboxed-purge", Pattern: "POST /sandbox/{id}/purge", Summary: "Destroy a sandbox with its files",
			Answers: answer(http.StatusOK, s.JSON(httpapi.Purged{})), Serve: d.purge,
		},
		httpapi.Route{
			ID: "sandboxed-keepalive", Pattern: "POST /sandbox/{id}/keepalive", Summary: "Keep a sandbox that nobody uses",
			Body: s.JSON(Keepalive{}), Answers: answer(http.StatusOK, s.JSON(Kept{})), Serve: d.keepalive,
		},
		httpapi.Route{
			ID: "sandboxed-wake", Pattern: "POST /wake/{id}", Summary: "Wake or start a sandbox and wait until it runs",
			Answers: answer(http.StatusOK, s.JSON(Woken{})), Serve: d.wake,
		},
		httpapi.Route{
			ID: "sandboxed-exec", Pattern: "POST /sandbox/{id}/exec", Summary: "Run a program and wait for its end",
			Body: s.JSON(Exec{}), Answers: answer(http.StatusOK, result), Serve: d.exec,
		},
	)
	d.snapshotRoutes(words)
	describeSignIn(s)
}

// imageOfAgents has the coding agents that sandboxed's image has.
const imageOfAgents = "dev"

// root is where the relative paths of a sandbox are that the dialect made.
func root(b sandbox.Sandbox) string {
	if b.Spec.Labels[madeLabel] == "" {
		return ""
	}
	return appDir
}

func refuseMethod(w http.ResponseWriter, err error) {
	front.WriteJSON(w, http.StatusMethodNotAllowed, Error{Error: err.Error()})
}

func (d *dialect) create(w http.ResponseWriter, r *http.Request) error {
	var in Input
	if err := d.ReadBody(r, &in); err != nil {
		return err
	}
	switch {
	case in.Template != "" || in.TemplatePath != "":
		return errs.E(errs.Unsupported, "there are no templates")
	case in.IdlePolicy != "" && in.IdlePolicy != string(sandbox.IdleSleep) && in.IdlePolicy != string(sandbox.IdleAlwaysOn):
		return errs.E(errs.Invalid, "idle_policy must be sleep or always_on")
	}
	req := lifecycle.CreateRequest{Interface: Interface, Prefer: imageOfAgents, ID: in.ID, Snapshot: in.FromSnapshot, IdempotencyKey: r.Header.Get("Idempotency-Key"), Spec: sandbox.Spec{
		Image: in.Image, Isolation: sandbox.Isolation(in.Isolation), Env: in.Env, Ports: in.Ports,
		Visibility: sandbox.Visibility(in.Visibility), IdlePolicy: sandbox.IdleSleep, AutoWake: sandbox.AutoWakeAlways, External: sandbox.External{UserID: defaultExternalUser},
		Labels: map[string]string{madeLabel: "true"}, GitRemoteURL: in.GitRemoteURL,
	}}
	if in.FromSnapshot == "" {
		req.Spec.Services = devServer(in.Ports)
	}
	if in.Visibility == "" {
		req.Spec.Visibility = sandbox.Public // as sandboxed's previews are
	}
	if in.IdlePolicy != "" {
		req.Spec.IdlePolicy = sandbox.IdlePolicy(in.IdlePolicy)
	}
	if x := in.External; x != nil {
		req.Spec.External = sandbox.External{UserID: x.UserID, ProjectID: x.ProjectID, WorkspaceID: x.WorkspaceID}
		if x.UserID == "" {
			req.Spec.External.UserID = defaultExternalUser
		}
	}
	b, err := d.Core.Sandboxes().Create(r.Context(), req)
	if err != nil {
		return err
	}
	// The sandbox is there without it too: a full disk says so at the first write.
	_, _ = d.Core.Files().MakeDir(r.Context(), string(b.ID), appDir, 0, true)
	front.WriteJSON(w, http.StatusCreated, rowOf(b))
	return nil
}

func (d *dialect) list(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	q := lifecycle.Query{Limit: 1000, External: sandbox.External{
		UserID: query.Get("external_user_id"), ProjectID: query.Get("external_project_id"), WorkspaceID: query.Get("external_workspace_id"),
	}}
	rows := []Row{}
	for {
		page, err := d.Core.Sandboxes().List(r.Context(), q)
		if err != nil {
			return err
		}
		for _, b := range page.Sandboxes {
			rows = append(rows, rowOf(b))
		}
		if page.Next == "" {
			front.WriteJSON(w, http.StatusOK, rows)
			return nil
		}
		q.Cursor = page.Next
	}
}

func (d *dialect) get(w http.ResponseWriter, r *http.Request) error {
	b, err := d.Core.Sandboxes().Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return noRow(err)
	}
	out := Detail{Row: rowOf(b)}
	if b.State == sandbox.Running {
		live := string(b.State)
		out.LiveState, out.Runtime = &live, d.runtimeOf(r.Context(), b)
	}
	front.WriteJSON(w, http.StatusOK, out)
	return nil
}

func (d *dialect) destroy(w http.ResponseWriter, r *http.Request) error {
	if err := d.Core.Sandboxes().Destroy(r.Context(), r.PathValue("id"), true); err != nil {
		return noRow(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (d *dialect) purge(w http.ResponseWriter, r *http.Request) error {
	freed, err := d.Core.Sandboxes().Purge(r.Context(), r.PathValue("id"))
	if err != nil {
		return noRow(err)
	}
	front.WriteJSON(w, http.StatusOK, httpapi.Purged{Purged: true, FreedBytes: freed})
	return nil
}

func (d *dialect) keepalive(w http.ResponseWriter, r *http.Request) error {
	var in Keepalive
	if err := d.ReadBody(r, &in); err != nil {
		return err
	}
	var k lifecycle.Keepalive
	if in.Until != nil {
		longest := time.Now().Add(longestKeepalive)
		k.Until = time.Unix(min(*in.Until, longest.Unix()), 0)
	}
	b, err := d.Core.Sandboxes().Keepalive(r.Context(), r.PathValue("id"), k)
	if err != nil {
		return noRow(err)
	}
	out := Kept{ID: string(b.ID)}
	if until := slices.MaxFunc([]time.Time{b.Spec.KeptUntil, b.IdleAt}, time.Time.Compare); !until.IsZero() {
		at := until.Unix()
		out.KeepaliveUntil = &at
	}
	front.WriteJSON(w, http.StatusOK, out)
	return nil
}

func (d *dialect) wake(w http.ResponseWriter, r *http.Request) error {
	begun := time.Now()
	b, err := d.Core.Sandboxes().Wake(r.Context(), r.PathValue("id"))
	if err != nil {
		return noRow(err)
	}
	front.WriteJSON(w, http.StatusOK, Woken{ID: string(b.ID), Status: statuses[b.State], WakeDurationMS: time.Since(begun).Milliseconds()})
	return nil
}

// noRow gives an unknown id sandboxed's words.
func noRow(err error) error {
	if errs.KindOf(err) == errs.NotFound {
		return errs.E(errs.NotFound, "no sandbox row for that id%s", scope.Fate(err)).Because(err)
	}
	return err
}
