package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// TaskEvent is one event of a task. What it says comes out of the sandbox: the
// daemon vouches only for the event "done".
type TaskEvent struct {
	ID   int64  `json:"id"` // from 0, without gaps
	Type string `json:"type"`
	// Time is when it happened; zero in a stream, which does not say it.
	Time time.Time       `json:"time,omitzero"`
	Data json.RawMessage `json:"data"`
}

// The types of events, and what [TaskEvent.Value] makes of them.
const (
	TaskStatusEvent     = "status"     // TaskPhase
	TaskMessageEvent    = "message"    // TaskMessage, whole
	TaskThoughtEvent    = "thought"    // TaskMessage, whole
	TaskDeltaEvent      = "delta"      // TaskDelta, a piece of a message or a thought
	TaskToolEvent       = "tool"       // TaskTool
	TaskPlanEvent       = "plan"       // TaskPlan
	TaskDiffEvent       = "diff"       // TaskDiff
	TaskBuildEvent      = "build"      // TaskBuild
	TaskUsageEvent      = "usage"      // TaskTokens so far
	TaskPermissionEvent = "permission" // TaskQuestion
	TaskPushEvent       = "push"       // TaskPush
	TaskDoneEvent       = "done"       // Task, of which only the fields of its end are set; the last event
)

// Value decodes what an event says, by its type; nil for a type that this version
// does not know.
func (e TaskEvent) Value() (any, error) {
	switch e.Type {
	case TaskStatusEvent:
		return read[TaskPhase](e.Data)
	case TaskMessageEvent, TaskThoughtEvent:
		return read[TaskMessage](e.Data)
	case TaskDeltaEvent:
		return read[TaskDelta](e.Data)
	case TaskToolEvent:
		return read[TaskTool](e.Data)
	case TaskPlanEvent:
		return read[TaskPlan](e.Data)
	case TaskDiffEvent:
		return read[TaskDiff](e.Data)
	case TaskBuildEvent:
		return read[TaskBuild](e.Data)
	case TaskUsageEvent:
		return read[TaskTokens](e.Data)
	case TaskPermissionEvent:
		return read[TaskQuestion](e.Data)
	case TaskPushEvent:
		return read[TaskPush](e.Data)
	case TaskDoneEvent:
		return read[Task](e.Data)
	}
	return nil, nil
}

func read[T any](data json.RawMessage) (any, error) {
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, badEvent(err)
	}
	return v, nil
}

// TaskPhase says that a phase begins: "starting", "checkpoint", "agent_running",
// "build_check" or "health_check".
type TaskPhase struct {
	Phase      string `json:"phase"`
	Checkpoint string `json:"checkpoint_id,omitempty"` // from agent_running on
}

// TaskMessage is a whole message or thought of the agent. Role is "agent", or
// "agent_error" for what it says went wrong; a thought has none.
type TaskMessage struct {
	Role string `json:"role,omitempty"`
	Text string `json:"text"`
	ID   string `json:"message_id,omitempty"` // that of its deltas
}

// TaskDelta is a piece of a message or a thought, as it comes.
type TaskDelta struct {
	Of   string `json:"of"` // TaskMessageEvent or TaskThoughtEvent
	ID   string `json:"message_id"`
	Text string `json:"text"`
}

// TaskTool is a call of one of the agent's tools: at most one event for each status
// that a call has.
type TaskTool struct {
	Name   string `json:"name"`
	Status string `json:"status"`                 // pending, running, completed, error
	Path   string `json:"path"`                   // what it is about: a file, a pattern or a command
	ID     string `json:"tool_call_id,omitempty"` // of the call
	Kind   string `json:"kind,omitempty"`         // read, edit, execute, …
	Output string `json:"output,omitempty"`       // the end of what it gave
}

// TaskPlan is the agent's whole plan as it stands.
type TaskPlan struct {
	Entries []TaskPlanEntry `json:"entries"`
}

// TaskPlanEntry is one step of a plan.
type TaskPlanEntry struct {
	Content  string `json:"content"`
	Status   string `json:"status"`             // pending, in_progress, completed
	Priority string `json:"priority,omitempty"` // high, medium, low
}

// TaskDiff is what the task changed about one file, against its checkpoint.
type TaskDiff struct {
	Path      string `json:"path"`
	Status    string `json:"status"`          // added, modified, deleted
	Patch     string `json:"patch,omitempty"` // a unified diff; "" of a binary file
	Binary    bool   `json:"binary,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
}

// TaskBuild is how the project's build went.
type TaskBuild struct {
	OK      bool   `json:"build_ok"`
	Message string `json:"build_error_message,omitempty"`
}

// TaskQuestion is what the agent asks leave for: "pending", or "resolved" with
// Outcome.
type TaskQuestion struct {
	ID      string       `json:"id"`
	Status  string       `json:"status"`
	Tool    TaskTool     `json:"tool"`
	Options []TaskOption `json:"options"`
	Outcome string       `json:"outcome,omitempty"` // the option that was chosen, or "cancelled"
}

// TaskOption is one way to answer a question.
type TaskOption struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Kind string `json:"kind"` // allow_once, allow_always, reject_once, reject_always
}

func sinceQuery(since int64) url.Values {
	q := url.Values{}
	if since > 0 {
		q.Set("since", strconv.FormatInt(since, 10))
	}
	return q
}

// Events follows the events of a task from an id, 0 for the first, to "done". A broken
// connection, a restarted proxy or daemon is bridged, without a gap or a repetition.
// Leaving the loop does not touch the task. After an error the iteration ends.
func (t *Tasks) Events(ctx context.Context, task string, since int64) iter.Seq2[TaskEvent, error] {
	return following[TaskEvent]{t.c, t.path(task, "events"), sinceQuery, errStreamCut, readTaskEvent}.from(ctx, since)
}

func readTaskEvent(ev event, next int64) (step[TaskEvent], error) {
	if ev.id == "" { // about the stream, not of the task
		if ev.name != "error" {
			return step[TaskEvent]{}, nil
		}
		if e, ok := decodeEnvelope(ev.data); ok {
			return step[TaskEvent]{}, e
		}
		return step[TaskEvent]{}, badEvent(nil)
	}
	id, err := strconv.ParseInt(ev.id, 10, 64)
	if err != nil || !json.Valid(ev.data) {
		return step[TaskEvent]{}, badEvent(err)
	}
	e := TaskEvent{ID: id, Type: ev.name, Data: ev.data}
	return step[TaskEvent]{item: e, some: id >= next, next: id + 1, last: e.Type == TaskDoneEvent}, nil
}

// EventsSoFar returns the events of a task from an id on without waiting for more, at
// most 1,000 and some megabytes, and the id to go on from.
func (t *Tasks) EventsSoFar(ctx context.Context, task string, since int64) (events []TaskEvent, next int64, err error) {
	var page struct {
		Events []TaskEvent `json:"events"`
		Next   int64       `json:"next"`
	}
	err = t.c.do(ctx, call{
		method: http.MethodGet, path: t.path(task, "events"), query: sinceQuery(since), header: http.Header{"Accept": {"application/json"}},
	}, &page)
	return page.Events, page.Next, err
}
