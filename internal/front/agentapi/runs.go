package agentapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
)

// Run is one go at a thread.
type Run struct {
	ID          string                 `json:"run_id"`
	ThreadID    string                 `json:"thread_id"`
	AssistantID string                 `json:"assistant_id"`
	CreatedAt   time.Time              `json:"created_at"`
	UpdatedAt   time.Time              `json:"updated_at"`
	Status      conversation.RunStatus `json:"status" enum:"pending,running,error,success,timeout,interrupted"`
	Metadata    object                 `json:"metadata"`
	Kwargs      map[string]any         `json:"kwargs" doc:"What it was asked to do."`
	Multitask   string                 `json:"multitask_strategy"`
	Error       json.RawMessage        `json:"error,omitempty" doc:"Why it failed."`
}

func runOf(r conversation.Run, thread string) Run {
	q := r.Request
	out := Run{
		ID: r.ID, ThreadID: thread, AssistantID: r.AssistantID, CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(), Status: r.Status,
		Metadata: orNoFields(r.Metadata), Multitask: string(r.Multitask),
	}
	if out.Multitask == "" {
		out.Multitask = string(conversation.MultitaskReject)
	}
	if conversation.Given(r.Error) {
		out.Error = r.Error
	}
	configurable := object{}
	for k, v := range q.Configurable {
		configurable[k] = v
	}
	configurable["run_id"], configurable["thread_id"], configurable["assistant_id"] = jsonOf(r.ID), jsonOf(thread), jsonOf(r.AssistantID)
	config := map[string]any{"configurable": configurable, "metadata": out.Metadata}
	if q.RecursionLimit > 0 {
		config["recursion_limit"] = q.RecursionLimit
	}
	if q.Tags != nil {
		config["tags"] = q.Tags
	}
	modes := q.StreamMode
	if len(modes) == 0 {
		modes = []string{"values"}
	}
	out.Kwargs = map[string]any{
		"config": config, "context": orEmpty(q.Context), "stream_mode": modes, "temporary": q.Temporary, "subgraphs": false, "resumable": true,
	}
	if conversation.Given(q.Input) {
		out.Kwargs["input"] = q.Input
	}
	if q.Webhook != "" {
		out.Kwargs["webhook"] = q.Webhook
	}
	if q.Command != nil {
		out.Kwargs["command"] = q.Command
	}
	if q.InterruptBefore != nil {
		out.Kwargs["interrupt_before"] = q.InterruptBefore
	}
	if q.InterruptAfter != nil {
		out.Kwargs["interrupt_after"] = q.InterruptAfter
	}
	return out
}

// runPath is where a run is, without the prefix of the API: clients put it behind the
// URL that they were given.
func runPath(thread, run string) string {
	return "/threads/" + url.PathEscape(thread) + "/runs/" + url.PathEscape(run)
}

// place tells the client of a run where it is, and, if it has a rest, where to come
// back to.
func place(h http.Header, thread, run, rest string) {
	h.Set("Content-Location", runPath(thread, run))
	if rest != "" {
		h.Set("Location", runPath(thread, run)+rest)
	}
}

func (d *door) createRun(w http.ResponseWriter, r *http.Request) error {
	b, err := d.begin(r, false)
	if err != nil {
		return err
	}
	place(w.Header(), b.thread.ID, b.run.ID, "")
	front.WriteJSON(w, http.StatusOK, runOf(b.run, b.thread.ID))
	return nil
}

// createRuns makes several runs, each in a thread of its own.
func (d *door) createRuns(w http.ResponseWriter, r *http.Request) error {
	data, err := body(r)
	if err != nil {
		return err
	}
	var in []json.RawMessage
	if json.Unmarshal(data, &in) != nil || len(in) == 0 || len(in) > 100 {
		return errs.E(errs.Invalid, "the body is not a list of 1 to 100 runs")
	}
	list := make([]Run, len(in))
	for i, one := range in {
		b, err := d.beginOf(r, one, false)
		if err != nil {
			return err
		}
		list[i] = runOf(b.run, b.thread.ID)
	}
	front.WriteJSON(w, http.StatusOK, list)
	return nil
}

func (d *door) listRuns(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	limit, err := number(query, "limit", 10)
	if err != nil {
		return err
	}
	offset, err := number(query, "offset", 0)
	if err != nil {
		return err
	}
	if limit < 1 || limit > 1000 {
		return errs.E(errs.Invalid, "limit: %d is not between 1 and 1000", limit)
	}
	status := conversation.RunStatus(query.Get("status"))
	if err := oneOf("status", string(status), "pending", "running", "error", "success", "timeout", "interrupted"); err != nil {
		return err
	}
	thread := r.PathValue("thread_id")
	found, err := d.Runs.List(r.Context(), thread, agent.RunQuery{Limit: limit, Offset: offset, Status: status})
	if err != nil {
		return err
	}
	fields := page{Select: listIn(query, "select")}
	return writeSelected(w, fields, each(found, func(run conversation.Run) Run { return runOf(run, thread) }))
}

func (d *door) getRun(w http.ResponseWriter, r *http.Request) error {
	thread := r.PathValue("thread_id")
	run, err := d.Runs.Get(r.Context(), thread, r.PathValue("run_id"))
	if err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, runOf(run, thread))
	return nil
}

func (d *door) deleteRun(w http.ResponseWriter, r *http.Request) error {
	if err := d.Runs.Delete(r.Context(), r.PathValue("thread_id"), r.PathValue("run_id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// rollsBack reads the action of a cancellation.
func rollsBack(action string) (bool, error) {
	err := oneOf("action", action, "interrupt", "rollback", "cancel")
	return action == "rollback", err
}

func (d *door) cancelRun(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	rollback, err := rollsBack(query.Get("action"))
	if err != nil {
		return err
	}
	thread := r.PathValue("thread_id")
	run, err := d.Runs.Cancel(r.Context(), thread, r.PathValue("run_id"), rollback, yes(query.Get("wait")))
	if err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, runOf(run, thread))
	return nil
}

// RunsCancel names runs to cancel.
type RunsCancel struct {
	ThreadID string   `json:"thread_id,omitempty"`
	RunIDs   []string `json:"run_ids,omitempty"`
	Status   string   `json:"status,omitempty" doc:"pending, running or all, instead of ids"`
}

func (d *door) cancelRuns(w http.ResponseWriter, r *http.Request) error {
	var in RunsCancel
	if err := read(r, &in); err != nil {
		return err
	}
	rollback, err := rollsBack(r.URL.Query().Get("action"))
	if err != nil {
		return err
	}
	if err := oneOf("status", in.Status, "pending", "running", "all"); err != nil {
		return err
	}
	switch {
	case in.ThreadID == "" && len(in.RunIDs) > 0, in.ThreadID != "" && len(in.RunIDs) == 0 && in.Status == "":
		return unprocessable(errs.E(errs.Invalid, "thread_id goes with run_ids or status"))
	case in.ThreadID == "" && in.Status == "":
		return unprocessable(errs.E(errs.Invalid, "neither runs nor a status is named"))
	}
	threads := []string{in.ThreadID}
	if in.ThreadID == "" {
		if threads, err = d.busyThreads(r); err != nil {
			return err
		}
	}
	for _, thread := range threads {
		if err := d.cancelIn(r, thread, in, rollback); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// busyThreads are those in which something goes on.
func (d *door) busyThreads(r *http.Request) ([]string, error) {
	var ids []string
	for {
		found, total, err := d.Threads.IDs(r.Context(), agent.ThreadQuery{Status: conversation.ThreadBusy, SortBy: "thread_id", Limit: 1000, Offset: len(ids)})
		if err != nil {
			return nil, err
		}
		ids = append(ids, found...)
		if len(found) == 0 || len(ids) >= total {
			return ids, nil
		}
	}
}

func (d *door) cancelIn(r *http.Request, thread string, in RunsCancel, rollback bool) error {
	ids := in.RunIDs
	if len(ids) == 0 {
		status := conversation.RunStatus(in.Status)
		if in.Status == "all" {
			status = ""
		}
		var err error
		if ids, err = d.Runs.IDs(r.Context(), thread, status); err != nil && !errors.Is(err, errs.NotFound) { // it may be gone by now
			return err
		}
	}
	for _, id := range ids {
		if _, err := d.Runs.Cancel(r.Context(), thread, id, rollback, false); err != nil && (len(in.RunIDs) > 0 || !errors.Is(err, errs.NotFound)) {
			return err
		}
	}
	return nil
}
