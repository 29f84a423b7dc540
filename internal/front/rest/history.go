package rest

import (
	"context"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/core/history"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/front/sse"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Stats is what a sandbox uses now.
type Stats struct {
	MemoryBytes int64   `json:"memory_bytes" doc:"0 while it does not run."`
	OnDisk      int64   `json:"memory_on_disk_bytes" doc:"What the kept memory of a sleeping one takes of the host's disk."`
	CPUSeconds  float64 `json:"cpu_seconds"`
	PIDs        int64   `json:"pids" doc:"-1 where they mean nothing: gVisor's processes are not the host's."`
	DiskBytes   int64   `json:"disk_bytes" doc:"What its disk takes of the host's."`
	DiskUsed    int64   `json:"disk_used_bytes" doc:"As df inside shows it."`
	Execs       int     `json:"execs" doc:"Commands that run now."`
}

// Event is one entry of a sandbox's history.
type Event struct {
	Cursor  int64     `json:"cursor" doc:"Ascending: where to go on after this one."`
	Time    time.Time `json:"time"`
	Kind    eventKind `json:"kind"`
	Actor   string    `json:"actor,omitempty" doc:"The principal's name; absent for cubby itself."`
	Seq     int64     `json:"seq,omitempty" doc:"The operation that it is about, to be read at …/events/{seq}; absent for an act that was over at once."`
	Status  string    `json:"status" enum:"pending,running,done,error" doc:"An operation leaves an event for each status that it reaches."`
	Payload any       `json:"payload" doc:"What was asked, by kind."`
	Result  any       `json:"result,omitempty" doc:"What came of it."`
}

// EventList is a part of a history.
type EventList struct {
	Events []Event `json:"events" nullable:"false"`
	Next   int64   `json:"next" doc:"Where to go on: the cursor of the last event seen."`
}

type eventsInput struct {
	exchange
	IDInput
	After       int64    `query:"after" minimum:"0" doc:"Cursor; 0 is the start."`
	Limit       int      `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Of a list; a stream has none."`
	Kinds       []string `query:"kinds" maxItems:"32" doc:"Only these, separated by commas; git.* is all that begin with git." example:"exec.finished,git.*"`
	Follow      bool     `query:"follow" doc:"Answer with Server-Sent Events and go on, as Accept: text/event-stream does."`
	LastEventID string   `header:"Last-Event-ID" doc:"Of a stream; wins over after."`
}

func (d *door) historyRoutes() {
	register(d, operation{
		id: "get-stats", method: http.MethodGet, path: "/v1/sandboxes/{id}/stats", tag: "sandboxes", summary: "What a sandbox uses now",
	}, func(ctx context.Context, in *IDInput) (*struct{ Body Stats }, error) {
		s, err := d.Core.Sandboxes().Stats(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		return &struct{ Body Stats }{Stats{
			MemoryBytes: s.MemoryBytes, OnDisk: s.MemoryOnDisk, CPUSeconds: s.CPUTime.Seconds(), PIDs: s.PIDs, DiskBytes: s.Disk.Allocated,
			DiskUsed: s.Disk.Used, Execs: s.Execs,
		}}, nil
	})
	list := orEvents(httpapi.Media("application/json", d.Schema(EventList{}, "EventList")))
	register(d, operation{
		id: "list-events", method: http.MethodGet, path: "/v1/sandboxes/{id}/events", tag: "history",
		summary: "A sandbox's history, oldest first",
		description: "It outlives the sandbox for the retention time of the daemon. As Server-Sent Events it goes on until the sandbox is destroyed: " +
			"the id of an event is its cursor, to resume after by Last-Event-ID or after; its name is its kind. Events without an id are no part of the history: ping; error, when the stream could not go on; end, when nothing will follow.",
		responses: map[string]*huma.Response{"200": {Description: "Events", Content: list}},
	}, d.listEvents)
	register(d, operation{
		id: "get-operation", method: http.MethodGet, path: "/v1/sandboxes/{id}/events/{seq}", tag: "history",
		summary:     "An operation with its output and result so far",
		description: "Commands, operations of git and programs of terminals are all numbered by seq. With wait_seconds it waits for the end first.",
		responses:   execResponse(d),
	}, d.getExec)
}

func (d *door) listEvents(ctx context.Context, in *eventsInput) (*streamed, error) {
	if in.Follow || wantsEvents(in.r.Header.Get("Accept")) {
		return d.followEvents(ctx, in)
	}
	events, next, err := d.Core.Events().List(ctx, in.ID, in.After, in.Limit, in.Kinds...)
	if err != nil {
		return nil, err
	}
	out := EventList{Events: make([]Event, len(events)), Next: next}
	for i, e := range events {
		out.Events[i] = eventJSON(e)
	}
	return stream(func() { front.WriteJSON(in.w, http.StatusOK, out) }), nil
}

func (d *door) followEvents(ctx context.Context, in *eventsInput) (*streamed, error) {
	after := in.After
	if in.LastEventID != "" {
		n, err := strconv.ParseInt(in.LastEventID, 10, 64)
		if err != nil || n < 0 {
			return nil, errs.E(errs.Invalid, "Last-Event-ID: not a cursor")
		}
		after = n
	}
	// What would end the stream at once is told by a status.
	if _, _, err := d.Core.Events().List(ctx, in.ID, after, 1, in.Kinds...); err != nil {
		return nil, err
	}
	if in.head() {
		return &streamed{Body: nothing(sse.MediaType)}, nil
	}
	follower, err := d.Core.Events().Follower(ctx)
	if err != nil {
		return nil, err
	}
	return stream(func() {
		defer follower.Leave()
		s, err := sse.New(in.w, http.StatusOK)
		if err != nil {
			return
		}
		source := func(ctx context.Context) iter.Seq2[history.Told, error] {
			return follower.Follow(ctx, in.ID, after, in.Kinds...)
		}
		send := func(e history.Told) error {
			if e.More {
				return s.WriteEncoded(e.Form(encodedEvent))
			}
			return s.SendEncoded(e.Form(encodedEvent))
		}
		err = sse.Pump(ctx, d.Life.Done(), source, sse.PingEvery, send, s.Ping)
		if err == nil {
			err = s.Send(sse.NoID, "end", struct{}{})
		}
		d.failStream(ctx, s, err)
	}), nil
}

func encodedEvent(e sandbox.Event) ([]byte, error) { return sse.Encode(e.Cursor, e.Kind, eventJSON(e)) }

func eventJSON(e sandbox.Event) Event {
	return Event{
		Cursor: e.Cursor, Time: e.Time.UTC(), Kind: eventKind(e.Kind), Actor: e.Actor, Seq: e.Seq, Status: string(e.Status),
		Payload: front.RawJSON(e.Payload), Result: front.RawJSON(e.Result),
	}
}
