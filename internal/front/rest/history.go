package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// Stats is what a sandbox uses now.
type Stats struct {
	MemoryBytes int64   `json:"memory_bytes"`
	CPUSeconds  float64 `json:"cpu_seconds"`
	PIDs        int64   `json:"pids" doc:"-1 where they mean nothing: gVisor's processes are not the host's."`
	DiskBytes   int64   `json:"disk_bytes" doc:"What its disk takes of the host's."`
	DiskUsed    int64   `json:"disk_used_bytes" doc:"As df inside shows it."`
	Execs       int     `json:"execs" doc:"Commands that run now."`
}

// Event is one entry of a sandbox's history.
type Event struct {
	Cursor  int64           `json:"cursor"`
	Kind    string          `json:"kind" example:"exec.finished"`
	Actor   string          `json:"actor,omitempty" doc:"The principal's name; absent for cubby itself."`
	Payload json.RawMessage `json:"payload,omitempty"`
	Time    time.Time       `json:"time"`
}

// EventList is a part of a history.
type EventList struct {
	Events []Event `json:"events" nullable:"false"`
	Next   int64   `json:"next" doc:"Where to go on: the cursor of the last event seen."`
}

type eventsInput struct {
	IDInput
	After int64 `query:"after" minimum:"0" doc:"Cursor; 0 is the start."`
	Limit int   `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

func (d *Door) historyRoutes() {
	register(d, operation{
		id: "get-stats", method: http.MethodGet, path: "/v1/sandboxes/{id}/stats", tag: "sandboxes", summary: "What a sandbox uses now",
	}, func(ctx context.Context, in *IDInput) (*struct{ Body Stats }, error) {
		s, err := d.core.Stats(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		return &struct{ Body Stats }{Stats{
			MemoryBytes: s.MemoryBytes, CPUSeconds: s.CPUTime.Seconds(), PIDs: s.PIDs, DiskBytes: s.Disk.Allocated,
			DiskUsed: s.Disk.Used, Execs: s.Execs,
		}}, nil
	})
	register(d, operation{
		id: "list-events", method: http.MethodGet, path: "/v1/sandboxes/{id}/events", tag: "sandboxes",
		summary: "A sandbox's history, oldest first", description: "It outlives the sandbox for the retention time of the daemon.",
	}, d.listEvents)
}

func (d *Door) listEvents(ctx context.Context, in *eventsInput) (*struct{ Body EventList }, error) {
	events, next, err := d.core.Events(ctx, in.ID, in.After, in.Limit)
	if err != nil {
		return nil, err
	}
	out := EventList{Events: make([]Event, len(events)), Next: next}
	for i, e := range events {
		out.Events[i] = Event{Cursor: e.Cursor, Kind: e.Kind, Actor: e.Actor, Payload: e.Payload, Time: e.Time.UTC()}
	}
	return &struct{ Body EventList }{out}, nil
}
