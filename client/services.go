package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// ServiceSpec declares a service: a command that runs for as long as its sandbox
// does.
type ServiceSpec struct {
	Name    string            `json:"name"`
	Command string            `json:"command"`        // for the shell
	Port    int               `json:"port,omitempty"` // that it listens on; a declared one, and PORT in its environment
	Cwd     string            `json:"cwd,omitempty"`  // default /workspace
	Env     map[string]string `json:"env,omitempty"`  // never shown again
	// Restart is "always" (default), "on_failure" or "never".
	Restart string `json:"restart,omitempty"`
	// Requires is an absolute path that has to exist before the first start.
	Requires string `json:"requires,omitempty"`
}

// Service is a service of a sandbox as it stands.
type Service struct {
	Name     string `json:"name"`
	Command  string `json:"command"`
	Port     int    `json:"port,omitempty"`
	Cwd      string `json:"cwd,omitempty"`
	Restart  string `json:"restart"`
	Requires string `json:"requires,omitempty"`
	// State is "waiting" for the path that it requires, "starting" until it runs
	// and listens on its port, "ready" then, "running" when it has no port,
	// "backoff" between an end and the next start, "failed" when it is given up,
	// "stopped", or "sleeping" with its sandbox.
	State      string     `json:"state"`
	Reason     string     `json:"reason,omitempty"` // why it failed, or cannot be started now
	PID        int64      `json:"pid,omitempty"`    // inside the sandbox
	Restarts   int        `json:"restarts"`         // since the sandbox was started
	Exec       int64      `json:"exec,omitempty"`   // Seq of the last run; 0: none
	ExitCode   *int       `json:"exit_code,omitempty"`
	ExitReason string     `json:"exit_reason,omitempty"` // as an exec's; "" while it runs
	StartedAt  *time.Time `json:"started_at,omitempty"`  // of the last run
	URL        string     `json:"url,omitempty"`         // the preview of its port, for whoever may see it
}

// Services lists the services of a sandbox. It wakes nothing.
func (c *Client) Services(ctx context.Context, id string) ([]Service, error) {
	var answer struct {
		Services []Service `json:"services"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: sandboxPath(id, "services")}, &answer)
	return answer.Services, err
}

// Service returns one service of a sandbox.
func (c *Client) Service(ctx context.Context, id, name string) (Service, error) {
	var s Service
	return s, c.do(ctx, call{method: http.MethodGet, path: sandboxPath(id, "services", name)}, &s)
}

// StartService starts a service, also one that was given up. One that runs is
// left as it is. What a service prints is the output of its Exec: see
// [Client.Process].
func (c *Client) StartService(ctx context.Context, id, name string) (Service, error) {
	return c.actOnService(ctx, id, name, "start")
}

// StopService ends a service, which stays stopped until somebody starts it or the
// sandbox is started.
func (c *Client) StopService(ctx context.Context, id, name string) (Service, error) {
	return c.actOnService(ctx, id, name, "stop")
}

// RestartService ends a service if it runs, and starts it.
func (c *Client) RestartService(ctx context.Context, id, name string) (Service, error) {
	return c.actOnService(ctx, id, name, "restart")
}

func (c *Client) actOnService(ctx context.Context, id, name, act string) (Service, error) {
	var s Service
	return s, c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "services", name, act)}, &s)
}

// ServiceRuns lists the runs of a service, as [Client.Execs] lists commands.
func (c *Client) ServiceRuns(ctx context.Context, id, name string, afterSeq int64) ([]Exec, error) {
	var page struct {
		Execs []Exec `json:"execs"`
	}
	q := url.Values{"service": {name}, "after_seq": {strconv.FormatInt(afterSeq, 10)}}
	err := c.do(ctx, call{method: http.MethodGet, path: sandboxPath(id, "execs"), query: q}, &page)
	return page.Execs, err
}
