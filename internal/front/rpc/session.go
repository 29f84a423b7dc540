package rpc

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	sandboxv1 "github.com/cubbyhq/cubby/api/gen/sandbox/v1"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// CreateSession implements the service.
func (d *Door) CreateSession(ctx context.Context, req *connect.Request[sandboxv1.CreateSessionRequest]) (*connect.Response[sandboxv1.CreateSessionResponse], error) {
	in := req.Msg
	id := in.GetSessionId()
	if id == "" {
		id = uuid.NewString()
	}
	idle := idleTimeout
	spec := sandbox.Spec{
		Isolation: d.core.Sandboxes().Defaults().Isolation, IdlePolicy: sandbox.IdleDestroy, Labels: map[string]string{label: "true"},
		Network: sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: in.GetAllowedHosts()},
	}
	if spec.Isolation == sandbox.GVisor {
		spec.User = sandbox.UserRoot // as in agentbox, whose users install packages
	}
	b, err := d.ensure(ctx, lifecycle.CreateRequest{Interface: Interface, ID: id, Tenant: in.GetTenantId(), Spec: spec, IdleTimeout: &idle})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&sandboxv1.CreateSessionResponse{Session: info(b)}), nil
}

// ensure returns the session of an id, whatever else is asked, and makes it
// when there is none. Calls that ask for one id at once get the same session.
func (d *Door) ensure(ctx context.Context, r lifecycle.CreateRequest) (sandbox.Sandbox, error) {
	const attempts = 3 // another call may take the id in between, and give it up again
	for attempt := 1; ; attempt++ {
		b, err := d.existing(ctx, r.ID)
		if err == nil && r.Tenant != "" && r.Tenant != b.Tenant {
			return b, errs.E(errs.Conflict, "the session with this id belongs to another tenant").Hint("choose another session_id")
		}
		if !errors.Is(err, errs.NotFound) {
			return b, err
		}
		b, err = d.core.Sandboxes().Create(ctx, r)
		if !errors.Is(err, errs.Conflict) || attempt == attempts {
			return b, err
		}
	}
}

// existing returns the session of an id that is in use, when commands can run
// in it.
func (d *Door) existing(ctx context.Context, id string) (sandbox.Sandbox, error) {
	for {
		b, err := d.session(ctx, id)
		if err != nil {
			return b, err
		}
		// WrongState: its create failed while it was waited for, and another may
		// have begun.
		// One that is still there is not to run.
		if b, _, err = d.core.Sandboxes().EnsureRunning(ctx, id, lifecycle.UseAny); !errors.Is(err, errs.WrongState) || b.State.Live() {
			return b, err
		}
	}
}

// session finds a session and counts as use of it. NotFound has agentbox's words,
// and what is known of a session that was there.
func (d *Door) session(ctx context.Context, id string) (sandbox.Sandbox, error) {
	b, err := d.core.Sandboxes().Get(ctx, id)
	switch {
	case unknown(err):
		return b, notFound(err) // no session can have an id that is invalid
	case err == nil && !b.State.Live():
		return b, errs.E(errs.NotFound, "%s%s", noSession, scope.Failure(b)) // a failed one is none
	case err != nil:
		return b, err
	case b.State == sandbox.Running:
		used, err := d.core.Sandboxes().Keepalive(ctx, id, lifecycle.Keepalive{})
		switch {
		case err == nil:
			return used, nil
		case errors.Is(err, errs.NotFound):
			return b, notFound(err) // it was just being destroyed
		}
	}
	return b, nil
}

// noSession is what agentbox says where there is no such session.
const noSession = "Session not found"

func notFound(err error) error { return errs.E(errs.NotFound, "%s", missing(err)).Because(err) }

// missing is noSession with what is known of the session that err does not find.
func missing(err error) string { return noSession + scope.Fate(err) }

// DestroySession implements the service.
func (d *Door) DestroySession(ctx context.Context, req *connect.Request[sandboxv1.DestroySessionRequest]) (*connect.Response[sandboxv1.DestroySessionResponse], error) {
	err := d.core.Sandboxes().Destroy(ctx, req.Msg.GetSessionId(), false)
	if err != nil && !unknown(err) {
		return nil, err
	}
	return connect.NewResponse(&sandboxv1.DestroySessionResponse{Success: err == nil}), nil
}

// unknown reports that an error says that there is no such session.
func unknown(err error) bool { return errors.Is(err, errs.NotFound) || errors.Is(err, errs.Invalid) }

// GetSession implements the service.
func (d *Door) GetSession(ctx context.Context, req *connect.Request[sandboxv1.GetSessionRequest]) (*connect.Response[sandboxv1.GetSessionResponse], error) {
	b, err := d.session(ctx, req.Msg.GetSessionId())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&sandboxv1.GetSessionResponse{Session: info(b)}), nil
}

// ListSessions implements the service.
func (d *Door) ListSessions(ctx context.Context, _ *connect.Request[sandboxv1.ListSessionsRequest]) (*connect.Response[sandboxv1.ListSessionsResponse], error) {
	const page = 1000
	out := &sandboxv1.ListSessionsResponse{}
	for q := (lifecycle.Query{Labels: map[string]string{label: "true"}, Limit: page}); ; {
		p, err := d.core.Sandboxes().List(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, b := range p.Sandboxes {
			if b.State.Live() {
				out.Sessions = append(out.Sessions, info(b))
			}
		}
		if q.Cursor = p.Next; q.Cursor == "" {
			return connect.NewResponse(out), nil
		}
	}
}

func info(b sandbox.Sandbox) *sandboxv1.SessionInfo {
	hosts := b.Spec.Network.Allow
	if len(hosts) == 0 && b.Spec.Network.Mode == sandbox.NetworkAllowlist {
		hosts = sandbox.DefaultAllow()
	}
	var tenant *string
	if b.Tenant != "" {
		tenant = &b.Tenant
	}
	return &sandboxv1.SessionInfo{
		TenantId:  tenant,
		SessionId: string(b.ID), ContainerId: string(b.UID), Status: string(b.State), AllowedHosts: hosts,
		CreatedAt: unix(b.CreatedAt), LastActivity: unix(b.LastActiveAt),
	}
}

// unix is seconds since 1970 with their fraction; 0 for no time.
func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMicro()) / 1e6
}
