package rest

import (
	"context"
	"net/http"
	"time"
)

// Session is a session shell of a sandbox.
type Session struct {
	Name       string    `json:"name"`
	Cwd        string    `json:"cwd" doc:"Where its next command begins; \"\" before one has ended."`
	Status     string    `json:"status" enum:"idle,busy,queued" doc:"busy: a command runs; queued: commands wait and none runs."`
	RunningSeq int64     `json:"running_seq,omitempty" doc:"The command that runs."`
	Pending    int       `json:"pending" doc:"How many commands wait."`
	LastUsedAt time.Time `json:"last_used_at"`
}

// SessionList is the sessions of a sandbox.
type SessionList struct {
	Sessions []Session `json:"sessions" nullable:"false"`
}

type sessionInput struct {
	IDInput
	Name string `path:"name"`
}

func (d *door) sessionRoutes() {
	register(d, operation{
		id: "list-sessions", method: http.MethodGet, path: "/v1/sandboxes/{id}/sessions", tag: "sessions", summary: "List session shells",
		description: "Those with a state that was kept and those with commands.",
	}, func(ctx context.Context, in *IDInput) (*struct{ Body SessionList }, error) {
		all, err := d.Core.Sessions().List(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		out := SessionList{Sessions: make([]Session, len(all))}
		for i, s := range all {
			out.Sessions[i] = Session{
				Name: s.Name, Cwd: s.Cwd, Status: string(s.Status), RunningSeq: s.RunningSeq, Pending: s.Pending,
				LastUsedAt: s.LastUsedAt.UTC(),
			}
		}
		return &struct{ Body SessionList }{out}, nil
	})
	register(d, operation{
		id: "forget-session", method: http.MethodDelete, path: "/v1/sandboxes/{id}/sessions/{name}", tag: "sessions",
		summary: "Forget a session's state: its next command begins anew", status: http.StatusNoContent,
		description: "409 while it has commands that run or wait.",
	}, func(ctx context.Context, in *sessionInput) (*struct{}, error) {
		return nil, d.Core.Sessions().Forget(ctx, in.ID, in.Name)
	})
}
