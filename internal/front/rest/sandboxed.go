package rest

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/sse"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// The dialect of sandboxed: the paths /sandbox… and /sandboxes with its field
// names, its compact JSON (its users cut the id out with sed, so exactly one
// key is named id) and its errors {"error":"…"}.

// defaultExternalUser owns what a request does not ascribe to anybody.
const defaultExternalUser = "local"

// sandboxedLabel marks the sandboxes that the dialect made. Relative paths of
// their files are below sandboxedApp, which they begin with.
const (
	sandboxedLabel = "sandboxd.managed"
	sandboxedApp   = sandbox.WorkspaceDir + "/app"
)

// sandboxedPath reports whether a path speaks the dialect.
func sandboxedPath(p string) bool {
	return p == "/sandbox" || p == "/sandboxes" || strings.HasPrefix(p, "/sandbox/")
}

type sandboxedError struct {
	Error string `json:"error"`
}

func writeSandboxedError(w http.ResponseWriter, err error) {
	info := errs.Public(err)
	front.SetErrorHeaders(w.Header(), err)
	message := info.Message
	if info.Hint != "" && info.Kind != errs.Unauthenticated {
		message += ": " + info.Hint
	}
	front.WriteJSON(w, front.RowOf(info.Kind).HTTP, sandboxedError{Error: message})
}

// SandboxedRow is a sandbox in sandboxed's words.
type SandboxedRow struct {
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

// SandboxedDetail is a row with what is true right now.
type SandboxedDetail struct {
	SandboxedRow
	LiveState *string `json:"live_state" doc:"running, or null."`
}

var sandboxedStatus = map[sandbox.State]string{
	sandbox.Creating: "creating", sandbox.Running: "running", sandbox.Sleeping: "stopped", sandbox.Stopped: "stopped",
	sandbox.Failed: "error", sandbox.Destroyed: "stopped",
}

func sandboxedRow(b sandbox.Sandbox) SandboxedRow {
	s := b.Spec
	row := SandboxedRow{
		ID: string(b.ID), Status: sandboxedStatus[b.State], Image: s.Image, WorkspaceMnt: sandbox.WorkspaceDir, ErrorMessage: scope.Fault(b),
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

// SandboxedInput is what POST /sandbox takes; every field is optional.
type SandboxedInput struct {
	ID         string             `json:"id,omitempty"`
	Ports      []int              `json:"ports,omitempty"`
	Env        map[string]string  `json:"env,omitempty"`
	Visibility string             `json:"visibility,omitempty" enum:"public,private"`
	IdlePolicy string             `json:"idle_policy,omitempty" enum:"sleep,always_on"`
	External   *SandboxedExternal `json:"external,omitempty"`

	Image     string `json:"image,omitempty" doc:"Cubby's own."`
	Isolation string `json:"isolation,omitempty" enum:"gvisor,container" doc:"Cubby's own."`

	// What cubby does not have is refused when it is asked for.
	Template     string `json:"template,omitempty"`
	TemplatePath string `json:"template_path,omitempty"`
	GitRemoteURL string `json:"git_remote_url,omitempty"`
}

// SandboxedExternal names an owner in the caller's own terms.
type SandboxedExternal struct {
	UserID      string `json:"user_id,omitempty"`
	ProjectID   string `json:"project_id,omitempty"`
	WorkspaceID string `json:"workspace_id,omitempty"`
}

// SandboxedExec runs a program.
type SandboxedExec struct {
	Cmd    []string `json:"cmd"`
	Stream bool     `json:"stream,omitempty"`
}

// SandboxedResult is how it went.
type SandboxedResult struct {
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	ExitCode int    `json:"exit_code"`
}

// SandboxedKeepalive postpones the end of an idle sandbox.
type SandboxedKeepalive struct {
	Until *int64 `json:"until,omitempty" doc:"Unix seconds, at most a day from now; default: as long as any use keeps it."`
}

// SandboxedKept is when a sandbox may be found idle at the earliest.
type SandboxedKept struct {
	ID             string `json:"id"`
	KeepaliveUntil *int64 `json:"keepalive_until" doc:"Unix seconds; null when it is never idle, or in use until further notice."`
}

// longestKeepalive is the longest lease of the dialect; longer ones are cut.
const longestKeepalive = 24 * time.Hour

func (d *Door) sandboxedRoutes() {
	row, rows := d.schema(SandboxedRow{}, "SandboxedRow"), &huma.Schema{Type: huma.TypeArray, Items: d.schema(SandboxedRow{}, "SandboxedRow")}
	d.dialect("sandboxed-create", "POST /sandbox", "Create a sandbox", SandboxedInput{}, "201", row, spoken(d.ecsCreate, d.sandboxedCreate))
	d.dialect("sandboxed-list", "GET /sandboxes", "List all sandboxes, newest first", nil, "200", rows, d.sandboxedList)
	d.dialect("sandboxed-get", "GET /sandbox/{id}", "Get a sandbox", nil, "200", d.schema(SandboxedDetail{}, "SandboxedDetail"), d.sandboxedGet)
	d.dialect("sandboxed-delete", "DELETE /sandbox/{id}", "Destroy a sandbox and keep its files for the next one with this id", nil, "204", nil, spoken(d.ecsDelete, d.sandboxedDelete))
	d.dialect("sandboxed-purge", "POST /sandbox/{id}/purge", "Destroy a sandbox with its files", nil, "200", d.schema(Purged{}, "Purged"), d.sandboxedPurge)
	d.dialect("sandboxed-keepalive", "POST /sandbox/{id}/keepalive", "Keep a sandbox that nobody uses", SandboxedKeepalive{}, "200", d.schema(SandboxedKept{}, "SandboxedKept"), d.sandboxedKeepalive)
	d.dialect("sandboxed-exec", "POST /sandbox/{id}/exec", "Run a program and wait for its end", SandboxedExec{}, "200", d.schema(SandboxedResult{}, "SandboxedResult"), d.spokenExec)
}

// dialect adds an endpoint that reads and writes for itself, because the
// dialect's habits are not those of /v1.
func (d *Door) dialect(id, pattern, summary string, body any, status string, answer *huma.Schema, h func(http.ResponseWriter, *http.Request) error) {
	d.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			d.Error(w, r, err)
		}
	})
	method, path, _ := strings.Cut(pattern, " ")
	op := &huma.Operation{
		OperationID: id, Method: method, Path: path, Tags: []string{"sandboxed"}, Summary: summary,
		Responses: map[string]*huma.Response{
			status:    {Description: "OK"},
			"default": {Description: "Error", Content: content("application/json", d.schema(sandboxedError{}, "SandboxedError"))},
		},
	}
	if answer != nil {
		op.Responses[status].Content = content("application/json", answer)
	}
	if body != nil {
		op.RequestBody = &huma.RequestBody{Content: content("application/json", d.schema(body, ""))}
	}
	if strings.Contains(path, "{id}") {
		op.Parameters = []*huma.Param{{Name: "id", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}}}
	}
	d.api.OpenAPI().AddOperation(op)
}

// body reads an optional JSON object of any content type.
func (d *Door) body(r *http.Request, v any) error {
	data, err := readAtMost(r.Body, d.limit)
	if err != nil {
		return err
	}
	if len(strings.TrimSpace(string(data))) == 0 {
		return nil
	}
	return decodeLoose(data, v)
}

func (d *Door) sandboxedCreate(w http.ResponseWriter, r *http.Request) error {
	var in SandboxedInput
	if err := d.body(r, &in); err != nil {
		return err
	}
	switch {
	case in.Template != "" || in.TemplatePath != "":
		return errs.E(errs.Unsupported, "there are no templates")
	case in.GitRemoteURL != "":
		return errs.E(errs.Unsupported, "git remotes are not supported at create")
	case in.IdlePolicy != "" && in.IdlePolicy != string(sandbox.IdleSleep) && in.IdlePolicy != string(sandbox.IdleAlwaysOn):
		return errs.E(errs.Invalid, "idle_policy must be sleep or always_on")
	}
	req := core.CreateRequest{Interface: core.Sandboxed, ID: in.ID, IdempotencyKey: r.Header.Get("Idempotency-Key"), Spec: sandbox.Spec{
		Image: in.Image, Isolation: sandbox.Isolation(in.Isolation), Env: in.Env, Ports: in.Ports,
		Visibility: sandbox.Visibility(in.Visibility), IdlePolicy: sandbox.IdleSleep, External: sandbox.External{UserID: defaultExternalUser},
		Labels: map[string]string{sandboxedLabel: "true"},
	}}
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
	b, err := d.core.Create(r.Context(), req)
	if err != nil {
		return err
	}
	// The sandbox is there without it too: a full disk says so at the first write.
	_, _ = d.core.Files().MakeDir(r.Context(), string(b.ID), sandboxedApp, 0, true)
	front.WriteJSON(w, http.StatusCreated, sandboxedRow(b))
	return nil
}

func (d *Door) sandboxedList(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	q := core.Query{Limit: 1000, External: sandbox.External{
		UserID: query.Get("external_user_id"), ProjectID: query.Get("external_project_id"), WorkspaceID: query.Get("external_workspace_id"),
	}}
	rows := []SandboxedRow{}
	for {
		page, err := d.core.List(r.Context(), q)
		if err != nil {
			return err
		}
		for _, b := range page.Sandboxes {
			rows = append(rows, sandboxedRow(b))
		}
		if page.Next == "" {
			front.WriteJSON(w, http.StatusOK, rows)
			return nil
		}
		q.Cursor = page.Next
	}
}

func (d *Door) sandboxedGet(w http.ResponseWriter, r *http.Request) error {
	b, err := d.core.Sandbox(r.Context(), r.PathValue("id"))
	if err != nil {
		return noRow(err)
	}
	out := SandboxedDetail{SandboxedRow: sandboxedRow(b)}
	if b.State == sandbox.Running {
		live := string(b.State)
		out.LiveState = &live
	}
	front.WriteJSON(w, http.StatusOK, out)
	return nil
}

func (d *Door) sandboxedDelete(w http.ResponseWriter, r *http.Request) error {
	if err := d.core.Destroy(r.Context(), r.PathValue("id"), true); err != nil {
		return noRow(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (d *Door) sandboxedPurge(w http.ResponseWriter, r *http.Request) error {
	freed, err := d.core.Purge(r.Context(), r.PathValue("id"))
	if err != nil {
		return noRow(err)
	}
	front.WriteJSON(w, http.StatusOK, Purged{Purged: true, FreedBytes: freed})
	return nil
}

func (d *Door) sandboxedKeepalive(w http.ResponseWriter, r *http.Request) error {
	var in SandboxedKeepalive
	if err := d.body(r, &in); err != nil {
		return err
	}
	var k core.Keepalive
	if in.Until != nil {
		longest := time.Now().Add(longestKeepalive)
		k.Until = time.Unix(min(*in.Until, longest.Unix()), 0)
	}
	b, err := d.core.Keepalive(r.Context(), r.PathValue("id"), k)
	if err != nil {
		return noRow(err)
	}
	out := SandboxedKept{ID: string(b.ID)}
	if until := slices.MaxFunc([]time.Time{b.Spec.KeptUntil, b.IdleAt}, time.Time.Compare); !until.IsZero() {
		at := until.Unix()
		out.KeepaliveUntil = &at
	}
	front.WriteJSON(w, http.StatusOK, out)
	return nil
}

// noRow gives an unknown id sandboxed's words.
func noRow(err error) error {
	if errs.KindOf(err) == errs.NotFound {
		return errs.E(errs.NotFound, "no sandbox row for that id%s", scope.Fate(err)).Because(err)
	}
	return err
}

func (d *Door) sandboxedExec(w http.ResponseWriter, r *http.Request) error {
	var in SandboxedExec
	if err := d.body(r, &in); err != nil {
		return err
	}
	if len(in.Cmd) == 0 {
		return errs.E(errs.Invalid, "cmd required")
	}
	ctx, id := r.Context(), r.PathValue("id")
	var none time.Duration // sandboxed's execs have no time limit
	spec := sandbox.ExecSpec{Argv: in.Cmd, Timeout: &none}
	if in.Stream {
		e, err := d.core.Exec(ctx, id, spec)
		if err != nil {
			return noRow(err)
		}
		d.sandboxedStream(ctx, w, id, e.Seq)
		return nil
	}
	caps := core.OutputCaps{Stdout: largestOutput, Stderr: largestOutput, Hold: heldOutput}
	res, err := d.core.RunExec(ctx, id, spec, longestWait, caps)
	for err == nil && !res.Exec.Status.Finished() {
		if _, err = d.core.WaitExec(ctx, id, res.Exec.Seq, longestWait); err == nil {
			res, err = d.core.Result(ctx, id, res.Exec.Seq, caps)
		}
	}
	if err != nil {
		return noRow(err)
	}
	var long longTexts
	out := SandboxedResult{Stdout: string(res.Stdout), Stderr: string(res.Stderr), ExitCode: exitCode(res.Exec.Exit)}
	if res.Long != nil {
		out.Stdout, out.Stderr = long.plain(ctx, res.Long.Stdout), long.plain(ctx, res.Long.Stderr)
	}
	out.Stderr += ending(res.Exec.Exit)
	d.writeLong(ctx, w, http.StatusOK, out, &long)
	return nil
}

// sandboxedStream writes standard output as it comes, then what went to
// standard error, then the exit code.
func (d *Door) sandboxedStream(ctx context.Context, w http.ResponseWriter, id string, seq int64) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	_ = control.Flush()
	var stderr strings.Builder
	err := sse.Pump(ctx, d.life.Done(), d.output(id, seq, 0, true), sse.PingEvery, func(e journal.Entry) error {
		var text []byte
		switch {
		case e.Exit != nil:
			text = []byte("---stderr---\n" + stderr.String() + ending(e.Exit) + "exit_code: " + strconv.Itoa(exitCode(e.Exit)) + "\n")
		case e.Output.Stream == sandbox.Stderr:
			if room := defaultOutput - stderr.Len(); room > 0 {
				stderr.Write(e.Output.Data[:min(room, len(e.Output.Data))])
			}
			return nil
		case e.Output.Stream == sandbox.Stdout:
			text = e.Output.Data
		}
		if _, err := w.Write(text); err != nil {
			return gone(err)
		}
		return control.Flush()
	}, control.Flush) // keeps a quiet stream from counting as stalled
	d.abort(ctx, err)
}

// ending tells an end that is not the command's own in the only place that the
// dialect has for it.
func ending(x *sandbox.Exit) string {
	if x == nil || x.Reason == sandbox.EndExited {
		return ""
	}
	if x.Message != "" {
		return string(x.Reason) + ": " + x.Message + "\n"
	}
	return string(x.Reason) + "\n"
}

func exitCode(x *sandbox.Exit) int {
	if x == nil || x.Code == nil {
		return -1
	}
	return *x.Code
}
