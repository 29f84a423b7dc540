package agentapi

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
)

// cronEndpoints are those of runs that begin by the clock.
func (d *door) cronEndpoints() []endpoint {
	const cron = "/runs/crons/{cron_id}"
	return []endpoint{
		{pattern: "POST /runs/crons", summary: "Make a cron, each of whose runs has a thread of its own", serve: d.createCron, body: CronCreate{}, answer: Cron{}},
		{pattern: "POST /threads/{thread_id}/runs/crons", summary: "Make a cron whose runs are in a thread", serve: d.createCron, body: CronCreate{}, answer: Cron{}},
		{pattern: "POST /runs/crons/search", summary: "List crons", serve: d.searchCrons, body: CronSearch{}, answer: listOf{Cron{}}},
		{pattern: "POST /runs/crons/count", summary: "Count crons", serve: d.countCrons, body: CronSearch{}, answer: 0},
		{pattern: "GET " + cron, summary: "Show a cron", serve: d.getCron, answer: Cron{}},
		{pattern: "PATCH " + cron, summary: "Change a cron", serve: d.updateCron, body: CronCreate{}, answer: Cron{}},
		{pattern: "DELETE " + cron, summary: "Remove a cron; a run that goes on stays", serve: d.deleteCron, status: http.StatusNoContent},
	}
}

// Cron is runs that begin by the clock.
type Cron struct {
	ID             string     `json:"cron_id"`
	AssistantID    string     `json:"assistant_id"`
	ThreadID       *string    `json:"thread_id" doc:"Null: each run has a thread of its own."`
	OnRunCompleted *string    `json:"on_run_completed" doc:"What becomes of the thread of a run that has one of its own: delete or keep"`
	EndTime        *time.Time `json:"end_time"`
	Schedule       string     `json:"schedule"`
	Timezone       *string    `json:"timezone"`
	CreatedAt      time.Time  `json:"created_at"`
	UpdatedAt      time.Time  `json:"updated_at"`
	Payload        object     `json:"payload" doc:"What each run is made from"`
	UserID         *string    `json:"user_id"`
	NextRunDate    *time.Time `json:"next_run_date"`
	Metadata       object     `json:"metadata"`
	Enabled        bool       `json:"enabled"`
	LastRunDate    *time.Time `json:"last_run_date" doc:"When a run was to begin last"`
	LastThreadID   *string    `json:"last_thread_id"`
	LastRunID      *string    `json:"last_run_id" doc:"The newest run"`
	LastError      *string    `json:"last_error" doc:"Why no run began at last_run_date"`
}

// optional is nil for what is not there.
func optional[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func cronOf(c conversation.Cron) (Cron, error) {
	payload, err := payloadOf(c)
	out := Cron{
		ID: c.ID, AssistantID: c.AssistantID, ThreadID: optional(c.ThreadID), EndTime: optional(c.EndTime.UTC()), Schedule: c.Schedule, Timezone: optional(c.Timezone),
		CreatedAt: c.CreatedAt.UTC(), UpdatedAt: c.UpdatedAt.UTC(), Payload: payload, UserID: optional(c.Owner), NextRunDate: optional(c.Next.UTC()),
		Metadata: orNoFields(c.Metadata), Enabled: c.Enabled, LastRunDate: optional(c.LastAt.UTC()), LastThreadID: optional(c.LastThread), LastRunID: optional(c.LastRun),
		LastError: optional(c.Failure),
	}
	if c.Thread == "" {
		completed := "delete"
		if c.Keep {
			completed = "keep"
		}
		out.OnRunCompleted = &completed
	}
	if !c.Enabled {
		out.NextRunDate = nil
	}
	return out, err
}

// payloadOf is what the runs of a cron are made from, as a client sends it.
func payloadOf(c conversation.Cron) (object, error) {
	q := c.Run.Request
	configurable := object{"cron_id": conversation.Text(c.ID)}
	for k, v := range q.Configurable {
		configurable[k] = v
	}
	raw, err := json.Marshal(RunCreate{
		AssistantID: c.AssistantID, Input: q.Input, Context: q.Context, Metadata: c.Run.Metadata, StreamMode: q.StreamMode, Webhook: q.Webhook,
		InterruptBefore: q.InterruptBefore, InterruptAfter: q.InterruptAfter, MultitaskStrategy: string(c.Run.Multitask),
		Config: RunConfig{Tags: q.Tags, RecursionLimit: q.RecursionLimit, Configurable: configurable},
	})
	var payload object
	if err == nil {
		err = json.Unmarshal(raw, &payload)
	}
	return payload, err
}

// CronCreate is what a cron is made from: what its runs are to do, and when.
type CronCreate struct {
	RunCreate

	Schedule       string  `json:"schedule" doc:"minute hour day-of-month month day-of-week, or @hourly, @daily, @weekly, @monthly, @yearly"`
	Timezone       *string `json:"timezone,omitempty" doc:"A name of IANA; default: UTC"`
	EndTime        string  `json:"end_time,omitempty" format:"date-time" doc:"No run begins after it."`
	Enabled        *bool   `json:"enabled,omitempty"`
	OnRunCompleted string  `json:"on_run_completed,omitempty" doc:"Of a run with a thread of its own: keep, or delete, which is the default"`
}

// endOf reads the end of a cron, with a zone or in UTC; "" is none.
func endOf(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, unprocessable(errs.E(errs.Invalid, "end_time: %.40q is not a time as 2026-12-31T23:59:59Z", text))
}

// checkCron refuses what cannot be done.
func (c *CronCreate) checkCron() error {
	if err := oneOf("on_run_completed", c.OnRunCompleted, "keep", "delete"); err != nil {
		return err
	}
	return c.check()
}

func (c *CronCreate) timezone() string {
	if c.Timezone == nil {
		return ""
	}
	return *c.Timezone
}

func (d *door) createCron(w http.ResponseWriter, r *http.Request) error {
	var in CronCreate
	if err := read(r, &in); err != nil {
		return err
	}
	if err := in.checkCron(); err != nil {
		return err
	}
	end, err := endOf(in.EndTime)
	if err != nil {
		return err
	}
	run := in.run(false)
	run.Keep = in.OnRunCompleted == "keep"
	made, err := d.Crons.Create(r.Context(), agent.NewCron{
		Thread: r.PathValue("thread_id"), Schedule: in.Schedule, Timezone: in.timezone(), EndTime: end, Disabled: in.Enabled != nil && !*in.Enabled, Run: run,
	})
	if err != nil {
		return refusedItem(err)
	}
	return writeCron(w, made)
}

func writeCron(w http.ResponseWriter, c conversation.Cron) error {
	shown, err := cronOf(c)
	if err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, shown)
	return nil
}

func (d *door) getCron(w http.ResponseWriter, r *http.Request) error {
	found, err := d.Crons.Get(r.Context(), r.PathValue("cron_id"))
	if err != nil {
		return err
	}
	return writeCron(w, found)
}

// payloadFields are what a change of a cron may say of its runs. Metadata is merged, the
// others are replaced.
var payloadFields = []string{"input", "config", "context", "webhook", "interrupt_before", "interrupt_after", "stream_mode", "multitask_strategy", "metadata"}

func (d *door) updateCron(w http.ResponseWriter, r *http.Request) error {
	data, err := body(r)
	if err != nil {
		return err
	}
	var given object
	var in struct {
		Schedule       *string `json:"schedule"`
		Timezone       *string `json:"timezone"`
		EndTime        string  `json:"end_time"`
		Enabled        *bool   `json:"enabled"`
		OnRunCompleted string  `json:"on_run_completed"`
	}
	if len(data) > 0 {
		if err := front.DecodeLoose(data, &given); err != nil {
			return err
		}
		if err := front.DecodeLoose(data, &in); err != nil {
			return err
		}
	}
	if err := oneOf("on_run_completed", in.OnRunCompleted, "keep", "delete"); err != nil {
		return err
	}
	p := agent.CronPatch{Schedule: in.Schedule, Timezone: in.Timezone, Enabled: in.Enabled}
	if _, changes := given["end_time"]; changes { // null: no end
		end, err := endOf(in.EndTime)
		if err != nil {
			return err
		}
		p.EndTime = &end
	}
	if in.OnRunCompleted != "" {
		keep := in.OnRunCompleted == "keep"
		p.Keep = &keep
	}
	for _, name := range payloadFields {
		if conversation.Given(given[name]) {
			p.Run = func(was conversation.Cron) (agent.NewRun, error) { return patched(was, given) }
		}
	}
	changed, err := d.Crons.Update(r.Context(), r.PathValue("cron_id"), p)
	if err != nil {
		return refusedItem(err)
	}
	return writeCron(w, changed)
}

// patched is what the runs of a cron are to do after a change.
func patched(was conversation.Cron, given object) (agent.NewRun, error) {
	payload, err := payloadOf(was)
	if err != nil {
		return agent.NewRun{}, err
	}
	for _, name := range payloadFields {
		if conversation.Given(given[name]) {
			payload[name] = given[name]
		}
	}
	raw, err := json.Marshal(payload)
	if err != nil {
		return agent.NewRun{}, err
	}
	var create RunCreate
	if err := front.DecodeLoose(raw, &create); err != nil {
		return agent.NewRun{}, err
	}
	if err := create.check(); err != nil {
		return agent.NewRun{}, err
	}
	if conversation.Given(given["metadata"]) {
		for name, value := range was.Run.Metadata {
			if _, replaced := create.Metadata[name]; !replaced {
				create.Metadata[name] = value
			}
		}
	}
	delete(create.Config.Configurable, "cron_id") // each run is given it
	run := create.run(false)
	run.Keep = was.Keep
	return run, nil
}

func (d *door) deleteCron(w http.ResponseWriter, r *http.Request) error {
	if err := d.Crons.Delete(r.Context(), r.PathValue("cron_id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// CronSearch selects crons.
type CronSearch struct {
	AssistantID string   `json:"assistant_id,omitempty" doc:"An assistant's id, or the graph's"`
	ThreadID    string   `json:"thread_id,omitempty"`
	Enabled     *bool    `json:"enabled,omitempty"`
	Metadata    object   `json:"metadata,omitempty"`
	Limit       *int     `json:"limit,omitempty" doc:"1 to 1000; default: 10"`
	Offset      *int     `json:"offset,omitempty"`
	SortBy      string   `json:"sort_by,omitempty" doc:"cron_id, assistant_id, thread_id, next_run_date, end_time, updated_at, or created_at, which is the default"`
	SortOrder   string   `json:"sort_order,omitempty" doc:"asc, or desc, which is the default"`
	Select      []string `json:"select,omitempty"`
}

func (s CronSearch) query(p page) agent.CronQuery {
	return agent.CronQuery{
		Assistant: s.AssistantID, Thread: s.ThreadID, Enabled: s.Enabled, Metadata: s.Metadata, SortBy: s.SortBy, Descending: s.SortOrder != "asc",
		Limit: *p.Limit, Offset: *p.Offset,
	}
}

func (d *door) searchCrons(w http.ResponseWriter, r *http.Request) error {
	var in CronSearch
	if err := read(r, &in); err != nil {
		return err
	}
	p := page{Limit: in.Limit, Offset: in.Offset, SortBy: in.SortBy, Order: in.SortOrder, Select: in.Select}
	if err := p.check("cron_id", "assistant_id", "thread_id", "next_run_date", "end_time", "created_at", "updated_at"); err != nil {
		return err
	}
	found, err := d.Crons.Search(r.Context(), in.query(p))
	if err != nil {
		return err
	}
	return writePage(w, p, found.Total, found.Len, func(yield func(any, error) bool) {
		for item, err := range found.All {
			var shown Cron
			if err == nil {
				shown, err = cronOf(item.Value)
			}
			if !yield(held{shown, item.Release}, err) {
				return
			}
		}
	})
}

func (d *door) countCrons(w http.ResponseWriter, r *http.Request) error {
	var in CronSearch
	if err := read(r, &in); err != nil {
		return err
	}
	var p page
	if err := p.check(); err != nil {
		return err
	}
	found, err := d.Crons.Search(r.Context(), in.query(p))
	if err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, found.Total)
	return nil
}
