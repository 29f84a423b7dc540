package rest

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// defaultGrace is how long a stopped sandbox's processes have to end.
const defaultGrace = 10 * time.Second

// IDInput names a sandbox.
type IDInput struct {
	ID string `path:"id" doc:"The sandbox's id."`
}

type sandboxOutput struct{ Body Sandbox }

func (d *door) sandboxRoutes() {
	register(d, operation{
		id: "create-sandbox", method: http.MethodPost, path: "/v1/sandboxes", tag: "sandboxes", status: http.StatusCreated,
		summary: "Create a sandbox and wait until it runs",
		description: "Every field is optional and so is the body. With an Idempotency-Key a repeat of the same request returns the sandbox of the first. " +
			"Dependencies are installed before the answer, and when that fails the create is undone. " +
			"The events of a stream are stdout and stderr of the installation as in GET …/execs/{seq}/stream, ping, and as the last one sandbox or error.",
		responses: map[string]*huma.Response{
			"201": {Description: "Created; a stream begins before it is", Content: orEvents(httpapi.Media("application/json", d.Schema(Sandbox{}, "Sandbox")))},
		},
	}, d.createSandbox)
	register(d, operation{
		id: "list-sandboxes", method: http.MethodGet, path: "/v1/sandboxes", tag: "sandboxes",
		summary: "List sandboxes, newest first",
	}, d.listSandboxes)
	register(d, operation{
		id: "get-sandbox", method: http.MethodGet, path: "/v1/sandboxes/{id}", tag: "sandboxes", summary: "Get a sandbox",
	}, func(ctx context.Context, in *IDInput) (*sandboxOutput, error) {
		b, err := d.Core.Sandboxes().Get(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		active, _, err := d.Core.Tasks().Active(ctx, b)
		if err != nil {
			return nil, err
		}
		out := sandboxJSON(b)
		out.ActiveTaskID = string(active)
		return &sandboxOutput{out}, nil
	})
	register(d, operation{
		id: "update-sandbox", method: http.MethodPatch, path: "/v1/sandboxes/{id}", tag: "sandboxes", summary: "Change a sandbox",
		description: "Fields that are absent stay as they are. Labels, metadata, ports and services are replaced as a whole.",
	}, d.updateSandbox)
	register(d, operation{
		id: "destroy-sandbox", method: http.MethodDelete, path: "/v1/sandboxes/{id}", tag: "sandboxes", status: http.StatusNoContent,
		summary: "Destroy a sandbox and everything of it but its history",
		responses: map[string]*huma.Response{
			"200": {Description: "It is destroyed, and this is its archive", Content: httpapi.Media("application/json", d.Schema(Archive{}, "Archive"))},
		},
	}, d.destroySandbox)
	register(d, operation{
		id: "start-sandbox", method: http.MethodPost, path: "/v1/sandboxes/{id}/start", tag: "sandboxes",
		summary:     "Start a stopped sandbox and wait until it runs",
		description: "Starting a running sandbox does nothing; starting a sleeping one wakes it.",
	}, func(ctx context.Context, in *IDInput) (*sandboxOutput, error) {
		return sandboxOut(d.Core.Sandboxes().Start(ctx, in.ID))
	})
	register(d, operation{
		id: "stop-sandbox", method: http.MethodPost, path: "/v1/sandboxes/{id}/stop", tag: "sandboxes",
		summary: "End a sandbox's processes and keep its files", description: "Stopping a stopped sandbox does nothing.",
	}, d.stopSandbox)
	register(d, operation{
		id: "sleep-sandbox", method: http.MethodPost, path: "/v1/sandboxes/{id}/sleep", tag: "sandboxes",
		summary: "Put a running sandbox to sleep: its memory goes to disk",
		description: "All that runs in it goes on after the wake, which the next use brings about unless auto_wake is never. " +
			"While a command, a cell, a transfer or a viewer is active, the answer is 409 in_use unless force is true. " +
			"Where memory cannot be kept (a container, or no room on the host's disk) the sandbox is stopped instead: the answer then has the status stopped, and reason says why. " +
			"Putting a sleeping sandbox to sleep does nothing.",
	}, d.sleepSandbox)
	register(d, operation{
		id: "wake-sandbox", method: http.MethodPost, path: "/v1/sandboxes/{id}/wake", tag: "sandboxes",
		summary: "Wake a sleeping sandbox and wait until it runs",
		description: "It is admitted like a start. If its memory can no longer be read, it starts from its files: restore_incomplete is then true, and reason says what was lost. " +
			"Waking a running sandbox does nothing; waking a stopped one starts it.",
	}, func(ctx context.Context, in *IDInput) (*sandboxOutput, error) {
		return sandboxOut(d.Core.Sandboxes().Wake(ctx, in.ID))
	})
	register(d, operation{
		id: "keep-sandbox", method: http.MethodPost, path: "/v1/sandboxes/{id}/keepalive", tag: "sandboxes",
		summary: "Say that a running sandbox is used, and take a lease",
		description: "Without until and seconds it is activity now. With one of them the sandbox does not idle before; a lease is not " +
			"shortened by another one and ends with the sandbox's lifetime. Zero seconds give it up.",
	}, d.keepSandbox)
	register(d, operation{
		id: "purge-sandbox", method: http.MethodPost, path: "/v1/sandboxes/{id}/purge", tag: "sandboxes",
		summary: "Destroy a sandbox, or what is left of one whose disk was kept",
	}, func(ctx context.Context, in *IDInput) (*struct{ Body httpapi.Purged }, error) {
		freed, err := d.Core.Sandboxes().Purge(ctx, in.ID)
		return &struct{ Body httpapi.Purged }{httpapi.Purged{Purged: true, FreedBytes: freed}}, err
	})
	d.historyRoutes()
}

func sandboxOut(b sandbox.Sandbox, err error) (*sandboxOutput, error) {
	if err != nil {
		return nil, err
	}
	return &sandboxOutput{sandboxJSON(b)}, nil
}

type createInput struct {
	exchange
	IdempotencyKey string        `header:"Idempotency-Key" maxLength:"255" doc:"Makes a repeat of this request return the same sandbox."`
	Body           *SandboxInput `doc:"Optional."`
}

func (d *door) createSandbox(ctx context.Context, in *createInput) (*streamed, error) {
	body := in.Body
	if body == nil {
		body = new(SandboxInput)
	}
	req, err := in.request(body)
	if err != nil {
		return nil, err
	}
	if body.Stream || wantsEvents(in.r.Header.Get("Accept")) {
		return stream(func() { d.followCreate(ctx, in.exchange, req) }), nil
	}
	working, done := ctx, func() {}
	if len(body.Dependencies) > 0 { // which may take longer than a daemon that stops can wait
		working, done = d.UntilDrain(ctx)
	}
	b, err := d.Core.Sandboxes().Create(working, req)
	done()
	if err != nil {
		return nil, err
	}
	return stream(func() { front.WriteJSON(in.w, http.StatusCreated, sandboxJSON(b)) }), nil
}

// request is what core is asked.
func (in *createInput) request(body *SandboxInput) (lifecycle.CreateRequest, error) {
	req := lifecycle.CreateRequest{ID: body.ID, Tenant: body.TenantID, SharedFiles: body.SharedFiles, IdempotencyKey: in.IdempotencyKey}
	spec := &req.Spec
	spec.Image, spec.Isolation, spec.Env, spec.User = body.Image, sandbox.Isolation(body.Isolation), body.Env, body.User
	spec.Runtime, spec.Dependencies = body.Runtime, body.Dependencies
	spec.Labels, spec.Metadata, spec.Ports = body.Labels, body.Metadata, body.Ports
	spec.Services = serviceSpecs(body.Services)
	spec.Visibility, spec.IdlePolicy = sandbox.Visibility(body.Visibility), sandbox.IdlePolicy(body.IdlePolicy)
	spec.HostHeader = sandbox.HostHeader(body.HostHeader)
	spec.AutoWake, spec.GitRemoteURL = sandbox.AutoWake(body.AutoWake), body.GitRemoteURL
	if body.Network != nil {
		spec.Network = body.Network.policy()
	}
	spec.Thread, req.Restore, req.Snapshot = body.Thread, body.Restore, cmp.Or(body.Snapshot, body.FromSnapshot)
	if body.Snapshot != "" && body.FromSnapshot != "" {
		return req, errs.E(errs.Invalid, "snapshot: it is given twice").Hint("give snapshot or from_snapshot")
	}
	var err error
	if spec.Limits, err = body.limits(); err != nil {
		return req, err
	}
	if req.IdleTimeout, err = optionalSeconds("idle_timeout_seconds", body.IdleTimeoutSeconds); err != nil {
		return req, err
	}
	if req.ExecTimeout, err = optionalSeconds("exec_timeout_seconds", body.ExecTimeoutSeconds); err != nil {
		return req, err
	}
	req.MaxLifetime, err = optionalSeconds("max_lifetime_seconds", body.MaxLifetimeSeconds)
	return req, err
}

func optionalSeconds(field string, s *float64) (*time.Duration, error) {
	if s == nil {
		return nil, nil //nolint:nilnil // absent is a value here
	}
	d, err := front.Seconds(field, *s)
	return &d, err
}

type listInput struct {
	Label  []string `query:"label,explode" doc:"key=value; several must all match."`
	Status []string `query:"status,explode" enum:"creating,running,sleeping,stopped,failed,destroyed" doc:"Several match any."`
	Thread string   `query:"thread" maxLength:"128"`
	Tenant string   `query:"tenant_id" maxLength:"64"`
	Limit  int      `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor string   `query:"cursor" doc:"next_cursor of the page before."`
}

// SandboxList is one page of sandboxes.
type SandboxList struct {
	Sandboxes  []Sandbox `json:"sandboxes" nullable:"false"`
	NextCursor string    `json:"next_cursor,omitempty" doc:"Absent on the last page."`
}

func (d *door) listSandboxes(ctx context.Context, in *listInput) (*struct{ Body SandboxList }, error) {
	labels, err := labelQuery(in.Label)
	if err != nil {
		return nil, err
	}
	q := lifecycle.Query{Labels: labels, Thread: in.Thread, Tenant: in.Tenant, Cursor: in.Cursor, Limit: in.Limit}
	for _, s := range in.Status {
		q.States = append(q.States, sandbox.State(s))
	}
	page, err := d.Core.Sandboxes().List(ctx, q)
	if err != nil {
		return nil, err
	}
	out := SandboxList{Sandboxes: make([]Sandbox, len(page.Sandboxes)), NextCursor: page.Next}
	for i, b := range page.Sandboxes {
		out.Sandboxes[i] = sandboxJSON(b)
	}
	return &struct{ Body SandboxList }{out}, nil
}

func labelQuery(labels []string) (map[string]string, error) {
	if len(labels) == 0 {
		return nil, nil
	}
	m := make(map[string]string, len(labels))
	for _, l := range labels {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return nil, errs.E(errs.Invalid, "label: not key=value")
		}
		m[k] = v
	}
	return m, nil
}

// SandboxPatch names what an update changes.
type SandboxPatch struct {
	Labels             *map[string]string `json:"labels,omitempty"`
	Metadata           *map[string]string `json:"metadata,omitempty"`
	Ports              *[]int             `json:"ports,omitempty"`
	Services           *[]ServiceSpec     `json:"services,omitempty" maxItems:"32" doc:"All of them: those that are another are restarted, those that are missing end."`
	Network            *Network           `json:"network,omitempty"`
	CutConnections     bool               `json:"cut_connections,omitempty" doc:"End the open connections to hosts that network, changed or not, does not allow; else they go on."`
	Visibility         *string            `json:"visibility,omitempty" enum:"public,private"`
	HostHeader         *string            `json:"host_header,omitempty" enum:"localhost,preserve"`
	IdlePolicy         *string            `json:"idle_policy,omitempty" enum:"stop,destroy,sleep,always_on"`
	IdleTimeoutSeconds *float64           `json:"idle_timeout_seconds,omitempty" minimum:"0"`
	AutoWake           *string            `json:"auto_wake,omitempty" enum:"idle,always,never"`
	ExecTimeoutSeconds *float64           `json:"exec_timeout_seconds,omitempty" minimum:"0"`
	MaxLifetimeSeconds *float64           `json:"max_lifetime_seconds,omitempty" minimum:"0"`
	GitRemoteURL       *string            `json:"git_remote_url,omitempty" maxLength:"2048" doc:"Where tasks are pushed to; empty: nowhere."`
}

type updateInput struct {
	IDInput
	Body SandboxPatch
}

func (d *door) updateSandbox(ctx context.Context, in *updateInput) (*sandboxOutput, error) {
	b := in.Body
	p := lifecycle.Patch{Labels: b.Labels, Metadata: b.Metadata, Ports: b.Ports, Services: servicesPatch(b.Services), CutConnections: b.CutConnections, GitRemoteURL: b.GitRemoteURL}
	if b.Network != nil {
		policy := b.Network.policy()
		p.Network = &policy
	}
	if b.Visibility != nil {
		v := sandbox.Visibility(*b.Visibility)
		p.Visibility = &v
	}
	if b.HostHeader != nil {
		v := sandbox.HostHeader(*b.HostHeader)
		p.HostHeader = &v
	}
	if b.IdlePolicy != nil {
		v := sandbox.IdlePolicy(*b.IdlePolicy)
		p.IdlePolicy = &v
	}
	if b.AutoWake != nil {
		v := sandbox.AutoWake(*b.AutoWake)
		p.AutoWake = &v
	}
	var err error
	if p.IdleTimeout, err = optionalSeconds("idle_timeout_seconds", b.IdleTimeoutSeconds); err != nil {
		return nil, err
	}
	if p.MaxLifetime, err = optionalSeconds("max_lifetime_seconds", b.MaxLifetimeSeconds); err != nil {
		return nil, err
	}
	if p.ExecTimeout, err = optionalSeconds("exec_timeout_seconds", b.ExecTimeoutSeconds); err != nil {
		return nil, err
	}
	return sandboxOut(d.Core.Sandboxes().Update(ctx, in.ID, p))
}

// StopInput says how long processes have to end.
type StopInput struct {
	GraceSeconds *float64 `json:"grace_seconds,omitempty" minimum:"0" maximum:"300" doc:"Between SIGTERM and SIGKILL; default 10."`
	Force        bool     `json:"force,omitempty" doc:"Also while a task runs; else that is 409 task_in_progress."`
}

type stopInput struct {
	IDInput
	Body *StopInput
}

func (d *door) stopSandbox(ctx context.Context, in *stopInput) (*sandboxOutput, error) {
	grace := defaultGrace
	if in.Body != nil && in.Body.GraceSeconds != nil {
		var err error
		if grace, err = front.Seconds("grace_seconds", *in.Body.GraceSeconds); err != nil {
			return nil, err
		}
	}
	stop := d.Core.Sandboxes().Stop
	if in.Body != nil && in.Body.Force {
		stop = d.Core.Sandboxes().StopAnyway
	}
	return sandboxOut(stop(ctx, in.ID, grace))
}

// SleepInput says whether a sandbox in use may be put to sleep.
type SleepInput struct {
	Force bool `json:"force,omitempty" doc:"Also while it is in use: commands, cells and terminals go on after the wake, transfers break off. Connections to the outside break in any case."`
}

type sleepInput struct {
	IDInput
	Body *SleepInput `doc:"Optional."`
}

func (d *door) sleepSandbox(ctx context.Context, in *sleepInput) (*sandboxOutput, error) {
	return sandboxOut(d.Core.Sandboxes().Sleep(ctx, in.ID, in.Body != nil && in.Body.Force))
}

// KeepaliveInput takes a lease.
type KeepaliveInput struct {
	Until   *time.Time `json:"until,omitempty" doc:"The sandbox does not idle before."`
	Seconds *float64   `json:"seconds,omitempty" minimum:"0" doc:"until, in seconds from now; 0 gives the lease up."`
}

type keepaliveInput struct {
	IDInput
	Body *KeepaliveInput `doc:"Optional."`
}

func (d *door) keepSandbox(ctx context.Context, in *keepaliveInput) (*sandboxOutput, error) {
	var k lifecycle.Keepalive
	if in.Body != nil {
		var err error
		if k.For, err = optionalSeconds("seconds", in.Body.Seconds); err != nil {
			return nil, err
		}
		if in.Body.Until != nil {
			if k.Until = *in.Body.Until; k.Until.IsZero() {
				return nil, errs.E(errs.Invalid, "until: that time has passed")
			}
		}
	}
	return sandboxOut(d.Core.Sandboxes().Keepalive(ctx, in.ID, k))
}
