package agentapi

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/agentapi/modes"
)

// Task is a node that is to run, or could not.
type Task struct {
	ID         string                   `json:"id"`
	Name       string                   `json:"name"`
	Path       []string                 `json:"path"`
	Error      *string                  `json:"error"`
	Interrupts []conversation.Interrupt `json:"interrupts"`
	Checkpoint any                      `json:"checkpoint"`
	State      any                      `json:"state"`
	Result     any                      `json:"result"`
}

// ThreadState is a thread as it was at a checkpoint.
type ThreadState struct {
	Values     any                  `json:"values" doc:"{\"messages\":[…]}; {}: it has no state."`
	Next       []string             `json:"next"`
	Tasks      []Task               `json:"tasks"`
	Metadata   object               `json:"metadata"`
	CreatedAt  *time.Time           `json:"created_at"`
	Checkpoint *modes.CheckpointRef `json:"checkpoint"`
	Parent     *modes.CheckpointRef `json:"parent_checkpoint"`
}

func stateOf(s agent.State) ThreadState {
	out := ThreadState{Values: struct{}{}, Next: []string{}, Tasks: []Task{}, Metadata: object{}}
	c := s.Checkpoint
	if c.ID == "" {
		return out
	}
	at := c.CreatedAt.UTC()
	out.Values, out.CreatedAt = valuesOf(s.Messages), &at
	out.Next = append(out.Next, c.Next...)
	for _, t := range c.Tasks {
		interrupts := t.Interrupts
		if interrupts == nil {
			interrupts = []conversation.Interrupt{}
		}
		out.Tasks = append(out.Tasks, Task{ID: t.ID, Name: t.Name, Path: modes.Path(t.Name), Error: errorOf(t.Error), Interrupts: interrupts})
	}
	// What the thread says of its assistant holds for its states too.
	for _, key := range []string{"graph_id", "assistant_id"} {
		if v, has := s.Thread.Metadata[key]; has {
			out.Metadata[key] = v
		}
	}
	for key, v := range c.Metadata {
		out.Metadata[key] = v
	}
	out.Metadata["source"], out.Metadata["step"], out.Metadata["parents"] = jsonOf(c.Source), jsonOf(c.Step), json.RawMessage(`{}`)
	out.Metadata["thread_id"] = jsonOf(s.Thread.ID)
	if c.RunID != "" {
		out.Metadata["run_id"] = jsonOf(c.RunID)
	}
	out.Checkpoint, out.Parent = modes.Ref(s.Thread.ID, c.ID), modes.Ref(s.Thread.ID, c.Parent)
	return out
}

// errorOf is why a task failed, in the JSON that clients read out of a text.
func errorOf(text *string) *string {
	if text == nil {
		return nil
	}
	name, message, named := strings.Cut(*text, ": ")
	if !named {
		name, message = "Error", *text
	}
	raw := string(jsonOf(map[string]string{"name": name, "error": name, "message": message}))
	return &raw
}

func jsonOf(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // texts and numbers
	}
	return raw
}

func (d *door) writeState(w http.ResponseWriter, r *http.Request, checkpoint string) error {
	s, err := d.Threads.State(r.Context(), r.PathValue("thread_id"), checkpoint)
	if err != nil {
		return err
	}
	return writeHeld(w, held{stateOf(s), s.Release})
}

func (d *door) getState(w http.ResponseWriter, r *http.Request) error { return d.writeState(w, r, "") }

func (d *door) getStateAt(w http.ResponseWriter, r *http.Request) error {
	return d.writeState(w, r, r.PathValue("checkpoint_id"))
}

// CheckpointChoice is how requests name a checkpoint, as {"checkpoint_id":…} or with
// that below configurable.
type CheckpointChoice struct {
	ID           string              `json:"checkpoint_id,omitempty"`
	NS           string              `json:"checkpoint_ns,omitempty" doc:"Of a subgraph, of which there are none: empty."`
	Configurable *CheckpointByConfig `json:"configurable,omitempty"`
}

// CheckpointByConfig is what a checkpoint's config says of it.
type CheckpointByConfig struct {
	ID string `json:"checkpoint_id,omitempty"`
}

func (c *CheckpointChoice) id() string {
	switch {
	case c == nil:
		return ""
	case c.ID == "" && c.Configurable != nil:
		return c.Configurable.ID
	}
	return c.ID
}

type stateAt struct {
	Checkpoint *CheckpointChoice `json:"checkpoint"`
}

// ofNoSubgraph refuses a checkpoint that is not of the graph itself.
func (c *CheckpointChoice) ofNoSubgraph() error {
	if c != nil && c.NS != "" {
		return unprocessable(errs.E(errs.Invalid, "checkpoint_ns: there are no subgraphs"))
	}
	return nil
}

func (d *door) postStateAt(w http.ResponseWriter, r *http.Request) error {
	var in stateAt
	if err := read(r, &in); err != nil {
		return err
	}
	return d.writeState(w, r, in.Checkpoint.id())
}

// StateUpdate changes a thread's state.
type StateUpdate struct {
	Values       json.RawMessage   `json:"values,omitempty" doc:"{\"messages\":[…]}, added as a node's would be"`
	AsNode       string            `json:"as_node,omitempty" doc:"Whose work it is taken for: agent or tools"`
	CheckpointID string            `json:"checkpoint_id,omitempty" doc:"What it changes; left out: the newest"`
	Checkpoint   *CheckpointChoice `json:"checkpoint,omitempty"`
}

// StateUpdated names a new checkpoint.
type StateUpdated struct {
	Checkpoint *modes.CheckpointRef `json:"checkpoint"`
}

func (d *door) updateState(w http.ResponseWriter, r *http.Request) error {
	var in StateUpdate
	if err := read(r, &in); err != nil {
		return err
	}
	thread := r.PathValue("thread_id")
	if err := in.Checkpoint.ofNoSubgraph(); err != nil {
		return err
	}
	if in.CheckpointID == "" {
		in.CheckpointID = in.Checkpoint.id()
	}
	var c conversation.Checkpoint
	for _, change := range asRead([]agent.StateChange{{Values: in.Values, AsNode: in.AsNode, Checkpoint: in.CheckpointID}}) {
		var err error
		if c, err = d.Threads.Change(r.Context(), thread, change); err != nil {
			return err
		}
	}
	front.WriteJSON(w, http.StatusOK, StateUpdated{modes.Ref(thread, c.ID)})
	return nil
}

type statePatch struct {
	Metadata   object            `json:"metadata"`
	Checkpoint *CheckpointChoice `json:"checkpoint"`
}

func (d *door) annotateState(w http.ResponseWriter, r *http.Request) error {
	var in statePatch
	if err := read(r, &in); err != nil {
		return err
	}
	thread := r.PathValue("thread_id")
	c, err := d.Threads.Annotate(r.Context(), thread, in.Checkpoint.id(), in.Metadata)
	if err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, StateUpdated{modes.Ref(thread, c.ID)})
	return nil
}

func (d *door) writeHistory(w http.ResponseWriter, r *http.Request, q agent.HistoryQuery) error {
	if q.Limit < 1 || q.Limit > 1000 {
		return errs.E(errs.Invalid, "limit: %d is not between 1 and 1000", q.Limit)
	}
	states, err := d.Threads.History(r.Context(), r.PathValue("thread_id"), q)
	if err != nil {
		return err
	}
	return writeEach(w, each(states, stateOf))
}

func (d *door) getHistory(w http.ResponseWriter, r *http.Request) error {
	limit, err := number(r.URL.Query(), "limit", 10)
	if err != nil {
		return err
	}
	return d.writeHistory(w, r, agent.HistoryQuery{Limit: limit, Before: r.URL.Query().Get("before")})
}

// before is a checkpoint's id, or an object with it.
type before struct{ id string }

// UnmarshalJSON reads both.
func (b *before) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &b.id) == nil {
		return nil
	}
	var c CheckpointChoice
	err := json.Unmarshal(data, &c)
	b.id = c.id()
	return err
}

type historySearch struct {
	Limit      *int              `json:"limit"`
	Before     before            `json:"before"`
	Metadata   object            `json:"metadata"`
	Checkpoint *CheckpointChoice `json:"checkpoint"`
}

func (d *door) postHistory(w http.ResponseWriter, r *http.Request) error {
	var in historySearch
	if err := read(r, &in); err != nil {
		return err
	}
	q := agent.HistoryQuery{Limit: 10, Before: in.Before.id, Metadata: in.Metadata}
	if in.Limit != nil {
		q.Limit = *in.Limit
	}
	if in.Checkpoint != nil && in.Checkpoint.NS != "" {
		// It is of a subgraph, and there are none.
		if _, err := d.Runs.IDs(r.Context(), r.PathValue("thread_id"), ""); err != nil {
			return err
		}
		front.WriteJSON(w, http.StatusOK, []ThreadState{})
		return nil
	}
	if at := in.Checkpoint.id(); at != "" { // the one that it names
		s, err := d.Threads.State(r.Context(), r.PathValue("thread_id"), at)
		if err != nil {
			return err
		}
		return writeEach(w, func(yield func(any, error) bool) { yield(held{stateOf(s), s.Release}, nil) })
	}
	return d.writeHistory(w, r, q)
}
