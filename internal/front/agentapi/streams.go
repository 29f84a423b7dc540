package agentapi

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"strconv"
	"strings"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front/agentapi/modes"
	"github.com/cubbyhq/cubby/internal/front/sse"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// streamRun begins a run and shows it.
func (d *door) streamRun(w http.ResponseWriter, r *http.Request) error {
	b, err := d.begin(r, true)
	if err != nil {
		return err
	}
	set, err := modes.Parse(b.StreamMode)
	if err != nil {
		return err
	}
	return d.show(w, r, b.thread.ID, b.run, set, position{}, b.cancels())
}

// joinStream shows a run that was begun before, from where the client was.
func (d *door) joinStream(w http.ResponseWriter, r *http.Request) error {
	from, err := positionOf(r)
	if err != nil {
		return err
	}
	thread := r.PathValue("thread_id")
	run, err := d.Runs.Get(r.Context(), thread, r.PathValue("run_id"))
	if err != nil {
		return err
	}
	names := listIn(r.URL.Query(), "stream_mode")
	if len(names) == 0 {
		names = run.Request.StreamMode
	}
	set, err := modes.Parse(names)
	if err != nil {
		return err
	}
	return d.show(w, r, thread, run, set, from, yes(r.URL.Query().Get("cancel_on_disconnect")))
}

// position is where in a stream a client was: behind an event of the journal, by its
// offset, and of what that becomes behind one with an ordinal. The zero value is the
// beginning.
type position struct {
	offset  int64
	ordinal int
}

// beginning is the id of an event before all.
const beginning = "-1"

// positionOf reads Last-Event-ID, which is an id that a stream had.
func positionOf(r *http.Request) (position, error) {
	return parsePosition(r.Header.Get("Last-Event-ID"))
}

func parsePosition(id string) (position, error) {
	if id == "" || id == beginning {
		return position{}, nil
	}
	offset, ordinal, ok := strings.Cut(id, ".")
	at, err1 := strconv.ParseInt(offset, 10, 64)
	n, err2 := strconv.ParseUint(ordinal, 10, 31)
	if !ok || err1 != nil || err2 != nil || at <= 0 {
		return position{}, errs.E(errs.Invalid, "Last-Event-ID: not an id of this stream").Hint("%s is the beginning", beginning)
	}
	return position{at, int(n)}, nil
}

func (p position) String() string {
	return strconv.FormatInt(p.offset, 10) + "." + strconv.Itoa(p.ordinal)
}

// before reports whether p is before o.
func (p position) before(o position) bool {
	return p.offset < o.offset || p.offset == o.offset && p.ordinal < o.ordinal
}

// show streams a run. The journal is read from its beginning in any case, because
// what an event becomes may depend on those before it; what the client has seen is not
// made again.
func (d *door) show(w http.ResponseWriter, r *http.Request, thread string, run conversation.Run, set modes.Set, from position, cancelOnDisconnect bool) error {
	ctx := r.Context()
	release, err := d.attach(ctx, thread, run.ID, cancelOnDisconnect)
	if err != nil {
		return err
	}
	defer release()
	about, err := d.aboutRun(ctx, thread, run)
	if err != nil {
		return err
	}
	place(w.Header(), thread, run.ID, "/stream")
	s, err := sse.New(w, http.StatusOK)
	if err != nil {
		return nil // the client is gone
	}
	v := &view{stream: s, renderer: modes.New(about, set), states: &states{threads: d.Threads, thread: thread}, from: from, id: beginning}
	source := func(ctx context.Context) iter.Seq2[conversation.Recorded, error] {
		return d.Runs.Follow(ctx, thread, run.ID, 0)
	}
	err = sse.Pump(ctx, d.Life.Done(), source, d.heartbeat, func(rec conversation.Recorded) error { return v.send(ctx, rec, position.String) }, func() error { return s.Comment("heartbeat") })
	d.finish(ctx, v, err)
	return nil
}

// attach notes that a client follows a run, until release. Clients that leave because
// the daemon stops come back, and their runs go on until then. One that has left
// already is noted too: its run may end by that.
func (d *door) attach(ctx context.Context, thread, run string, cancelOnDisconnect bool) (release func(), err error) {
	left, err := d.Runs.Attach(context.WithoutCancel(ctx), thread, run, cancelOnDisconnect)
	if err != nil {
		return nil, err
	}
	return func() {
		if d.Life.Err() == nil {
			left()
		}
	}, nil
}

// finish ends a stream. Clients take a stream that ends well for the whole of its
// run: one that was cut off is broken, and they come back for the rest.
func (d *door) finish(ctx context.Context, v *view, err error) {
	switch {
	case ctx.Err() != nil, err == nil && v.ended:
	case err == nil, errors.Is(err, sse.ErrDraining):
		panic(http.ErrAbortHandler)
	default:
		d.LogInternal(ctx, err)
		e := bodyOf(err)
		raw, _ := json.Marshal(failure{e.Error, e.Message}) // texts
		_ = v.stream.SendData(v.id, "error", raw)           // the client is gone: nobody is left to tell
	}
}

// failure is why a run or a stream failed.
type failure struct {
	Error   string `json:"error"`
	Message string `json:"message"`
}

// aboutRun is what a stream says of its run.
func (d *door) aboutRun(ctx context.Context, thread string, run conversation.Run) (modes.Run, error) {
	a, err := d.Assistants.Get(ctx, run.AssistantID)
	if errors.Is(err, errs.NotFound) { // it was removed since
		a.GraphID, err = conversation.Graph, nil
	}
	return modes.Run{Run: run, ThreadID: thread, GraphID: a.GraphID, Version: telemetry.Version}, err
}

// view is a stream of a run.
type view struct {
	stream   *sse.Stream
	renderer *modes.Renderer
	states   *states
	from     position // what the client has
	id       string   // of the last event that was sent
	ended    bool
}

// send shows an event of the journal. Its ids are made out of where they are.
func (v *view) send(ctx context.Context, rec conversation.Recorded, id func(position) string) error {
	v.ended = rec.Event.Ended != nil
	for _, e := range v.renderer.Add(rec.Event) {
		at := position{rec.Offset, e.Ordinal}
		if v.from != (position{}) && !v.from.before(at) {
			continue
		}
		data, err := e.Data(ctx, v.states)
		if errors.Is(err, errs.NotFound) {
			continue // the state was taken back since
		}
		if err != nil {
			return err
		}
		if data == nil {
			continue
		}
		raw, err := json.Marshal(data)
		v.states.yield()
		if err != nil {
			return err
		}
		v.id = id(at)
		if err := v.stream.SendData(v.id, e.Name, raw); err != nil {
			return err
		}
	}
	v.states.forget()
	return nil
}

// states reads the states of a thread. Several views of one event use the same.
type states struct {
	threads *agent.Threads
	thread  string

	id    string
	state agent.State
}

// State implements [modes.States].
func (s *states) State(ctx context.Context, id string) (conversation.Checkpoint, []conversation.Message, error) {
	if s.id != id {
		s.forget() // or a large one would wait for itself
		at, err := s.threads.State(ctx, s.thread, id)
		if err != nil {
			return conversation.Checkpoint{}, nil, err
		}
		s.id, s.state = id, at
	}
	return s.state.Checkpoint, s.state.Messages, nil
}

// yield lets go of a large state before it is sent, which may take as long as the
// client likes.
func (s *states) yield() {
	if s.state.Large() {
		s.forget()
	}
}

// forget lets go of a state: a stream that waits holds nothing.
func (s *states) forget() {
	s.state.Release()
	s.id, s.state = "", agent.State{}
}
