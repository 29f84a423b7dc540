package agentapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
)

// Thread is a conversation with its newest state.
type Thread struct {
	ID             string                              `json:"thread_id"`
	CreatedAt      time.Time                           `json:"created_at"`
	UpdatedAt      time.Time                           `json:"updated_at"`
	StateUpdatedAt time.Time                           `json:"state_updated_at"`
	Metadata       object                              `json:"metadata"`
	Status         conversation.ThreadStatus           `json:"status" enum:"idle,busy,interrupted,error"`
	Config         json.RawMessage                     `json:"config"`
	Values         any                                 `json:"values" doc:"{\"messages\":[…]}; null: it has no state."`
	Interrupts     map[string][]conversation.Interrupt `json:"interrupts" doc:"By the id of the task that waits."`
	Error          json.RawMessage                     `json:"error,omitempty" doc:"Of the last run, if that failed."`
}

func threadOf(t agent.ThreadView) Thread {
	out := Thread{
		ID: t.ID, CreatedAt: t.CreatedAt.UTC(), UpdatedAt: t.UpdatedAt.UTC(), StateUpdatedAt: t.StateUpdatedAt.UTC(), Metadata: orNoFields(t.Metadata),
		Status: t.Status, Config: orEmpty(t.Config), Interrupts: t.Interrupts,
	}
	if t.Messages != nil {
		out.Values = valuesOf(t.Messages)
	}
	if out.Interrupts == nil {
		out.Interrupts = map[string][]conversation.Interrupt{}
	}
	if conversation.Given(t.Error) {
		out.Error = t.Error
	}
	return out
}

// values is a state.
type values struct {
	Messages []conversation.Message `json:"messages"`
}

func valuesOf(messages []conversation.Message) values {
	if messages == nil {
		messages = []conversation.Message{}
	}
	return values{messages}
}

// ThreadCreate is what a thread is made from.
type ThreadCreate struct {
	ID       string      `json:"thread_id,omitempty"`
	Metadata object      `json:"metadata,omitempty"`
	IfExists string      `json:"if_exists,omitempty" doc:"raise, which is the default, or do_nothing"`
	Steps    []Superstep `json:"supersteps,omitempty" doc:"Updates that make up its state."`
}

// Superstep is a step of a state that is made up.
type Superstep struct {
	Updates []SuperstepUpdate `json:"updates"`
}

// SuperstepUpdate is what one node did in it.
type SuperstepUpdate struct {
	Values  json.RawMessage       `json:"values,omitempty"`
	AsNode  string                `json:"as_node,omitempty"`
	Command *conversation.Command `json:"command,omitempty"`
}

// changesOf are the changes of the state that supersteps make.
func changesOf(steps []Superstep) (changes []agent.StateChange, err error) {
	for _, step := range steps {
		for _, u := range step.Updates {
			if u.Command != nil && (conversation.Given(u.Command.Resume) || conversation.Given(u.Command.Goto)) {
				return nil, unprocessable(errs.E(errs.Invalid, "supersteps: a command there can only update"))
			}
			if u.Command != nil {
				u.Values = u.Command.Update
			}
			changes = append(changes, agent.StateChange{Values: u.Values, AsNode: u.AsNode})
		}
	}
	return asRead(changes), nil
}

// asRead has an input that is the last change read into the state, so that a run can go
// on from there. Before other changes it is they that do that, as with LangGraph.
func asRead(changes []agent.StateChange) []agent.StateChange {
	if n := len(changes); n > 0 && changes[n-1].AsNode == conversation.NodeInput {
		read := changes[n-1]
		read.AsNode, read.Checkpoint = conversation.NodeStart, ""
		changes = append(changes, read)
	}
	return changes
}

func (d *door) createThread(w http.ResponseWriter, r *http.Request) error {
	var in ThreadCreate
	if err := read(r, &in, cannotInThreads); err != nil {
		return err
	}
	keep, err := doNothing(in.IfExists)
	if err != nil {
		return err
	}
	changes, err := changesOf(in.Steps)
	if err != nil {
		return err
	}
	made, err := d.Threads.Create(r.Context(), agent.NewThread{ID: in.ID, Metadata: in.Metadata, DoNothing: keep})
	if err != nil {
		return err
	}
	for _, change := range changes {
		if _, err := d.Threads.Change(r.Context(), made.ID, change); err != nil {
			return err
		}
	}
	view := agent.ThreadView{Thread: made}
	if keep || len(in.Steps) > 0 {
		if view, err = d.Threads.Get(r.Context(), made.ID); err != nil {
			return err
		}
	}
	return writeHeld(w, held{threadOf(view), view.Release})
}

func (d *door) getThread(w http.ResponseWriter, r *http.Request) error {
	t, err := d.Threads.Get(r.Context(), r.PathValue("thread_id"))
	if err != nil {
		return err
	}
	return writeHeld(w, held{threadOf(t), t.Release})
}

type threadSearch struct {
	page

	IDs      []string                  `json:"ids"`
	Metadata object                    `json:"metadata"`
	Status   conversation.ThreadStatus `json:"status"`
}

var threadStatuses = []conversation.ThreadStatus{
	"", conversation.ThreadIdle, conversation.ThreadBusy, conversation.ThreadInterrupted, conversation.ThreadFailed,
}

func (s *threadSearch) query(r *http.Request) (agent.ThreadQuery, error) {
	if err := read(r, s, cannotInSearch); err != nil {
		return agent.ThreadQuery{}, err
	}
	if err := s.check("thread_id", "status", "created_at", "updated_at", "state_updated_at"); err != nil {
		return agent.ThreadQuery{}, err
	}
	if !slices.Contains(threadStatuses, s.Status) {
		return agent.ThreadQuery{}, errs.E(errs.Invalid, "status: %.40q is not one of idle, busy, interrupted, error", string(s.Status))
	}
	return agent.ThreadQuery{
		IDs: s.IDs, Metadata: s.Metadata, Status: s.Status, SortBy: s.SortBy, Descending: s.Order != "asc", Limit: *s.Limit, Offset: *s.Offset,
	}, nil
}

func (d *door) searchThreads(w http.ResponseWriter, r *http.Request) error {
	var in threadSearch
	q, err := in.query(r)
	if err != nil {
		return err
	}
	withState := in.shows("values") || in.shows("interrupts")
	found, err := d.Threads.Search(r.Context(), q, withState)
	if err != nil {
		return err
	}
	return writePage(w, in.page, found.Total, found.Len, each(found, threadOf))
}

func (d *door) countThreads(w http.ResponseWriter, r *http.Request) error {
	var in threadSearch
	q, err := in.query(r)
	if err != nil {
		return err
	}
	q.Limit, q.Offset = 1, 0
	_, total, err := d.Threads.IDs(r.Context(), q)
	if err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, total)
	return nil
}

type threadPatch struct {
	Metadata object `json:"metadata"`
}

func (d *door) updateThread(w http.ResponseWriter, r *http.Request) error {
	var in threadPatch
	if err := read(r, &in, cannotInThreads); err != nil {
		return err
	}
	t, err := d.Threads.Update(r.Context(), r.PathValue("thread_id"), in.Metadata)
	if err != nil {
		return err
	}
	return writeHeld(w, held{threadOf(t), t.Release})
}

func (d *door) deleteThread(w http.ResponseWriter, r *http.Request) error {
	if err := d.Threads.Delete(r.Context(), r.PathValue("thread_id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// ThreadDeleted says that the end of a thread has begun.
type ThreadDeleted struct {
	Status string `json:"status" enum:"deleted"`
}

// deleteRootThread answers as sandbox-agent does, whose path it is too. A thread may
// have sandboxes and no conversation.
func (d *door) deleteRootThread(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("thread_id")
	err := d.Threads.Delete(r.Context(), id)
	if errors.Is(err, errs.NotFound) {
		err = d.Core.Threads().End(r.Context(), id)
	}
	if err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, ThreadDeleted{"deleted"})
	return nil
}

func (d *door) copyThread(w http.ResponseWriter, r *http.Request) error {
	made, err := d.Threads.Copy(r.Context(), r.PathValue("thread_id"))
	if err != nil {
		return err
	}
	t, err := d.Threads.Get(r.Context(), made.ID)
	if err != nil {
		return err
	}
	return writeHeld(w, held{threadOf(t), t.Release})
}

// Pruned is how many threads are gone.
type Pruned struct {
	Count int `json:"pruned_count"`
}

type threadsPrune struct {
	IDs      []string `json:"thread_ids"`
	Strategy string   `json:"strategy"`
}

func (d *door) pruneThreads(w http.ResponseWriter, r *http.Request) error {
	var in threadsPrune
	if err := read(r, &in); err != nil {
		return err
	}
	if in.Strategy != "" && in.Strategy != "delete" {
		return unprocessable(errs.E(errs.Invalid, "strategy: %.40q is not possible", in.Strategy).Hint("delete is"))
	}
	var done Pruned
	for _, id := range in.IDs {
		switch err := d.Threads.Delete(r.Context(), id); {
		case err == nil:
			done.Count++
		case !errors.Is(err, errs.NotFound):
			return err
		}
	}
	front.WriteJSON(w, http.StatusOK, done)
	return nil
}
