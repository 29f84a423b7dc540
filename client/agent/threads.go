package agent

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// Thread is a conversation.
type Thread struct {
	ID        string                     `json:"thread_id"`
	CreatedAt time.Time                  `json:"created_at"`
	UpdatedAt time.Time                  `json:"updated_at"`
	Metadata  map[string]json.RawMessage `json:"metadata"`
	Status    ThreadStatus               `json:"status"`
	// Values is nil while the thread has no state.
	Values *Values `json:"values"`
	// Interrupts are the questions that it waits with, by task.
	Interrupts map[string][]Interrupt `json:"interrupts"`
}

// ThreadStatus is what goes on in a thread.
type ThreadStatus string

// The statuses of a thread.
const (
	Idle        ThreadStatus = "idle"
	Busy        ThreadStatus = "busy"
	Interrupted ThreadStatus = "interrupted" // it waits with a question
	Failed      ThreadStatus = "error"       // its last run failed
)

// Waiting lists the questions that the thread waits with.
func (t Thread) Waiting() []Interrupt {
	var all []Interrupt
	for _, list := range t.Interrupts {
		all = append(all, list...)
	}
	return all
}

// Values is the state of a thread.
type Values struct {
	Messages []Message `json:"messages"`
}

// Interrupt is a question of a run, which [RunRequest.Resume] answers.
type Interrupt struct {
	ID    string          `json:"id"`
	Value json.RawMessage `json:"value"`
}

// NewThread is what a thread is made from.
type NewThread struct {
	ID       string         `json:"thread_id,omitempty"` // a UUID; "": the daemon makes one
	Metadata map[string]any `json:"metadata,omitempty"`
	// IfExists is "raise" (default: client.Conflict), or "do_nothing", which returns the
	// thread that there is.
	IfExists string `json:"if_exists,omitempty"`
}

// CreateThread makes a thread.
func (a *Client) CreateThread(ctx context.Context, n NewThread) (Thread, error) {
	var got Thread
	return got, a.do(ctx, http.MethodPost, "/threads", n, &got)
}

// Thread returns a thread with its newest state.
func (a *Client) Thread(ctx context.Context, id string) (Thread, error) {
	var got Thread
	return got, a.do(ctx, http.MethodGet, path(id), nil, &got)
}

// ThreadQuery is a search for threads; what is empty does not matter.
type ThreadQuery struct {
	IDs       []string       `json:"ids,omitempty"`
	Metadata  map[string]any `json:"metadata,omitempty"` // each key has this value
	Status    ThreadStatus   `json:"status,omitempty"`
	Limit     int            `json:"limit,omitempty"` // 0: 10
	Offset    int            `json:"offset,omitempty"`
	SortBy    string         `json:"sort_by,omitempty"`    // thread_id, status, created_at (default), updated_at
	SortOrder string         `json:"sort_order,omitempty"` // asc, desc (default)
}

// Threads searches for threads.
func (a *Client) Threads(ctx context.Context, q ThreadQuery) ([]Thread, error) {
	var list []Thread
	return list, a.do(ctx, http.MethodPost, "/threads/search", q, &list)
}

// DeleteThread removes a thread with its sandboxes and files. Its runs end.
func (a *Client) DeleteThread(ctx context.Context, id string) error {
	return a.do(ctx, http.MethodDelete, path(id), nil, nil)
}

// State is a thread's state between two steps of a run.
type State struct {
	Values     Values          `json:"values"`
	Next       []string        `json:"next"`
	Tasks      []Task          `json:"tasks"`
	Metadata   json.RawMessage `json:"metadata"`
	CreatedAt  time.Time       `json:"created_at"`
	Checkpoint *CheckpointRef  `json:"checkpoint"`
	Parent     *CheckpointRef  `json:"parent_checkpoint"`
}

// Task is a step that is to be done, or could not be.
type Task struct {
	ID         string          `json:"id"`
	Name       string          `json:"name"`
	Error      json.RawMessage `json:"error"`
	Interrupts []Interrupt     `json:"interrupts"`
}

// CheckpointRef names a state of a thread.
type CheckpointRef struct {
	ThreadID string `json:"thread_id"`
	ID       string `json:"checkpoint_id"`
	NS       string `json:"checkpoint_ns"`
}

// State returns the newest state of a thread, or that of a checkpoint.
func (a *Client) State(ctx context.Context, thread, checkpoint string) (State, error) {
	var got State
	if checkpoint != "" {
		return got, a.do(ctx, http.MethodGet, path(thread, "state", checkpoint), nil, &got)
	}
	return got, a.do(ctx, http.MethodGet, path(thread, "state"), nil, &got)
}

// History returns the states of a thread, the newest first, up to limit (0: 10), those
// before a checkpoint if that is not "".
func (a *Client) History(ctx context.Context, thread string, limit int, before string) ([]State, error) {
	body := page(limit, 0)
	if before != "" {
		body["before"] = before
	}
	var list []State
	return list, a.do(ctx, http.MethodPost, path(thread, "history"), body, &list)
}
