package client

import (
	"context"
	"net/http"
	"time"
)

// Session is a session shell of a sandbox: see [ExecOptions].
type Session struct {
	Name string `json:"name"`
	// Cwd is where its next command begins; "" before one has ended.
	Cwd string `json:"cwd"`
	// Status is "idle", "busy" (a command runs) or "queued" (commands wait
	// and none runs).
	Status     string    `json:"status"`
	RunningSeq int64     `json:"running_seq,omitempty"` // the command that runs; 0: none
	Pending    int       `json:"pending"`               // how many commands wait
	LastUsedAt time.Time `json:"last_used_at"`
}

// Sessions lists the session shells of a sandbox.
func (c *Client) Sessions(ctx context.Context, id string) ([]Session, error) {
	var answer struct {
		Sessions []Session `json:"sessions"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: sandboxPath(id, "sessions")}, &answer)
	return answer.Sessions, err
}

// ForgetSession removes the state of a session: its next command begins anew.
// It is a conflict while the session has commands.
func (c *Client) ForgetSession(ctx context.Context, id, name string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: sandboxPath(id, "sessions", name)}, nil)
}
