package agent

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cubbyhq/cubby/client"
)

// Run is one turn of a thread.
type Run struct {
	ID        string    `json:"run_id"`
	ThreadID  string    `json:"thread_id"`
	Status    RunStatus `json:"status"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// RunStatus is what became of a run.
type RunStatus string

// The statuses of a run.
const (
	RunPending     RunStatus = "pending"
	RunRunning     RunStatus = "running"
	RunFailed      RunStatus = "error"
	RunSuccess     RunStatus = "success"
	RunTimeout     RunStatus = "timeout"
	RunInterrupted RunStatus = "interrupted" // it was canceled, or waits with a question
)

// Ended reports whether nothing more will come.
func (s RunStatus) Ended() bool { return s != RunPending && s != RunRunning }

// RunRequest is what a run is to do. It has an input (Text, Images or Messages), or an
// answer to the questions of the run before, or neither to try that one again.
type RunRequest struct {
	// Text and Images are a message of the user. Messages come before it.
	Text     string
	Images   []Image
	Messages []Message

	// Resume answers the interrupts that the thread waits with: see [Decisions].
	Resume any

	AssistantID string // "" is [Graph]
	Model       string // provider/model; "" is what the settings say
	SandboxID   string // the sandbox to work in; "": the thread's own
	// Configurable has further settings of the run.
	Configurable map[string]any
	Metadata     map[string]any
	// RecursionLimit bounds the steps; 0 is the daemon's default.
	RecursionLimit int
	// Multitask is what becomes of a run that goes on in the thread: "reject",
	// "interrupt", "rollback" or "enqueue"; "" leaves it to the daemon.
	Multitask string
	// MustExist: the thread is not made when there is none.
	MustExist bool
	// StreamModes are the kinds of events: of "values", "updates", "messages-tuple",
	// "custom" and others. Nil is all of those but values.
	StreamModes []string
}

// DefaultModes are the kinds of events that a stream has.
func DefaultModes() []string { return []string{"messages-tuple", "updates", "custom"} }

// body is the request as it travels.
func (r RunRequest) body() map[string]any {
	b := map[string]any{"assistant_id": Graph, "on_disconnect": "continue", "stream_resumable": true, "if_not_exists": "create"}
	if r.AssistantID != "" {
		b["assistant_id"] = r.AssistantID
	}
	if r.MustExist {
		b["if_not_exists"] = "reject"
	}
	messages := r.Messages
	if r.Text != "" || len(r.Images) > 0 {
		messages = append(messages[:len(messages):len(messages)], HumanMessage(r.Text, r.Images...))
	}
	if len(messages) > 0 {
		b["input"] = map[string]any{"messages": messages}
	}
	if r.Resume != nil {
		b["command"] = map[string]any{"resume": r.Resume}
	}
	configurable := map[string]any{}
	for k, v := range r.Configurable {
		configurable[k] = v
	}
	if r.Model != "" {
		configurable["model"] = r.Model
	}
	if r.SandboxID != "" {
		configurable["sandbox_id"] = r.SandboxID
	}
	config := map[string]any{}
	if len(configurable) > 0 {
		config["configurable"] = configurable
	}
	if r.RecursionLimit > 0 {
		config["recursion_limit"] = r.RecursionLimit
	}
	if len(config) > 0 {
		b["config"] = config
	}
	if r.Metadata != nil {
		b["metadata"] = r.Metadata
	}
	if r.Multitask != "" {
		b["multitask_strategy"] = r.Multitask
	}
	return b
}

// Start begins a run and returns it at once; it goes on without the caller. See
// [Client.Join].
func (a *Client) Start(ctx context.Context, thread string, r RunRequest) (Run, error) {
	body := r.body()
	body["stream_mode"] = r.modes()
	var run Run
	return run, a.do(ctx, http.MethodPost, path(thread, "runs"), body, &run)
}

// Run returns a run as it stands.
func (a *Client) Run(ctx context.Context, thread, run string) (Run, error) {
	var got Run
	return got, a.do(ctx, http.MethodGet, path(thread, "runs", run), nil, &got)
}

// Runs lists the runs of a thread, the newest first, up to limit; 0 is the daemon's
// choice.
func (a *Client) Runs(ctx context.Context, thread string, limit int) ([]Run, error) {
	q := url.Values{}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	var list []Run
	return list, a.c.Do(ctx, client.Request{Method: http.MethodGet, Path: prefix + path(thread, "runs"), Query: q}, &list)
}

// Cancel ends a run. What it has added to the thread stays. One that has ended stays as
// it is. With wait it returns when the run has ended.
func (a *Client) Cancel(ctx context.Context, thread, run string, wait bool) error {
	q := url.Values{"action": {"interrupt"}, "wait": {"0"}}
	if wait {
		q.Set("wait", "1")
	}
	return a.c.Do(ctx, client.Request{Method: http.MethodPost, Path: prefix + path(thread, "runs", run, "cancel"), Query: q}, nil)
}

// Wait returns the state of a thread when a run has ended; the error is a [*RunError]
// for one that failed. When ctx ends the run goes on.
func (a *Client) Wait(ctx context.Context, thread, run string) (Values, error) {
	var failed error
	for e, err := range a.join(ctx, thread, run, "", []string{"values"}) {
		if err != nil {
			return Values{}, err
		}
		if e.Error != nil {
			failed = e.Error
		}
	}
	if failed != nil {
		return Values{}, failed
	}
	s, err := a.State(ctx, thread, "")
	return s.Values, err
}

// Question is the value of an [Interrupt] that asks leave to call tools.
type Question struct {
	Actions []Action `json:"action_requests"`
	Reviews []Review `json:"review_configs"`
}

// Action is a call of a tool that is asked about.
type Action struct {
	Name        string          `json:"name"`
	Args        json.RawMessage `json:"args"`
	Description string          `json:"description,omitempty"`
}

// Review says which decisions are possible: "approve", "edit", "reject", "respond".
type Review struct {
	Action  string   `json:"action_name"`
	Allowed []string `json:"allowed_decisions"`
}

// Question reads what an interrupt asks; false when it asks something else.
func (i Interrupt) Question() (Question, bool) {
	var q Question
	err := json.Unmarshal(i.Value, &q)
	return q, err == nil && len(q.Actions) > 0
}

// Decision is what is to become of an [Action].
type Decision struct {
	Type    string  `json:"type"` // approve, edit, reject or respond
	Message string  `json:"message,omitempty"`
	Edited  *Edited `json:"edited_action,omitempty"`
}

// Edited is the call to make instead.
type Edited struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

// Decisions answers one question, with a decision for each of its actions, in their
// order. It is a [RunRequest.Resume].
func Decisions(list ...Decision) any { return map[string]any{"decisions": list} }
