package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/client/internal/sse"
)

// silence is how long a stream may say nothing before its connection is taken for dead.
// The daemon sends a sign of life every few seconds.
const silence = time.Minute

// errCut: the connection ended, and the run did not.
var errCut = &client.Error{Code: client.Unavailable, Message: "the stream ended before the run did", Retryable: true}

func (r RunRequest) modes() []string {
	if len(r.StreamModes) == 0 {
		return DefaultModes()
	}
	return r.StreamModes
}

// Stream begins a run and yields its events; the last one is End. A broken connection, a
// restarted proxy or daemon is bridged: the stream goes on after its last event. A run
// that fails is no error: it has an event with Error. Leaving the loop, or the end of
// ctx, does not end the run: see [Client.Cancel]. After an error the iteration ends.
//
// A connection that breaks before the daemon has said which run it began is an error,
// because the run may have begun: [Client.Runs] tells.
func (a *Client) Stream(ctx context.Context, thread string, r RunRequest) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		body := r.body()
		body["stream_mode"] = r.modes()
		s := stream{a: a, thread: thread, modes: r.modes(), yield: yield}
		s.run(ctx, &client.Request{
			Method: http.MethodPost, Path: prefix + path(thread, "runs", "stream"), Header: accept(), JSON: body,
		})
	}
}

// Join yields the events of a run that was begun before, those after an event's id, ""
// for all. It ends as [Client.Stream] does.
func (a *Client) Join(ctx context.Context, thread, run, after string) iter.Seq2[Event, error] {
	return a.join(ctx, thread, run, after, DefaultModes())
}

func (a *Client) join(ctx context.Context, thread, run, after string, modes []string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		s := stream{a: a, thread: thread, modes: modes, yield: yield, runID: run, last: after, place: path(thread, "runs", run, "stream")}
		s.run(ctx, nil)
	}
}

func accept() http.Header { return http.Header{"Accept": {"text/event-stream"}} }

// stream is the events of one run, over as many connections as that takes.
type stream struct {
	a      *Client
	thread string
	modes  []string
	yield  func(Event, error) bool

	runID string
	place string // where the run is joined; "": not known
	last  string // the id of the newest event; "": none came
	ended *End   // what the events say of the end
	left  bool   // the caller has had enough
}

// run reads connections until the run has ended. The first request, if any, begins it.
func (s *stream) run(ctx context.Context, first *client.Request) {
	again, progressed := s.a.c.Resuming()
	next := first
	for {
		if next == nil {
			next = s.rejoin()
		}
		begun, from := time.Now(), s.last
		err := s.connection(ctx, *next)
		next = nil
		if err == nil && !s.left {
			err = s.finish(ctx)
		}
		if s.left || err == nil {
			return
		}
		if s.last != from || time.Since(begun) > 5*time.Second {
			progressed()
		}
		if s.place == "" || !again(ctx, err) {
			s.yield(Event{}, err)
			return
		}
	}
}

// rejoin is the request that goes on after the newest event.
func (s *stream) rejoin() *client.Request {
	place, query, _ := strings.Cut(s.place, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		q = url.Values{}
	}
	if len(q["stream_mode"]) == 0 {
		q["stream_mode"] = s.modes
	}
	h := accept()
	h.Set("Last-Event-ID", "-1")
	if s.last != "" {
		h.Set("Last-Event-ID", s.last)
	}
	return &client.Request{Method: http.MethodGet, Path: prefix + place, Query: q, Header: h}
}

// connection reads one connection to its end, which is nil when it was not cut.
func (s *stream) connection(ctx context.Context, r client.Request) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	res, err := s.a.c.Send(ctx, r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if kind := res.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		return &client.Error{
			Code: client.Internal, Message: "what answers at " + s.a.c.URL() + " has no agent of this version",
			Hint: "check CUBBY_URL, and `cubby version` on both sides", Status: res.StatusCode,
		}
	}
	s.locate(res.Header)
	alive := time.AfterFunc(silence, func() { cancel(errCut) })
	defer alive.Stop()
	events := sse.NewReader(activity{res.Body, alive})
	for {
		ev, err := events.Next()
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(context.Cause(ctx), errCut), errors.Is(err, io.ErrUnexpectedEOF):
			return errCut
		default:
			return err
		}
		e, err := eventOf(ev)
		if err != nil {
			return err
		}
		if s.take(e); s.left {
			return nil
		}
	}
}

// take hands on an event. The end comes when the connection says no more.
func (s *stream) take(e Event) {
	if e.ID != "" {
		s.last = e.ID
	}
	switch {
	case e.End != nil:
		s.ended = e.End
		return
	case e.Error != nil:
		s.ended = &End{RunFailed}
	case e.Begun != nil && e.Begun.RunID != "":
		s.runID = e.Begun.RunID
		if s.place == "" {
			s.place = path(s.thread, "runs", s.runID, "stream")
		}
	}
	s.left = !s.yield(e, nil)
}

// finish yields the end of a stream whose connection was closed in good order, or is
// errCut when the run goes on: then something in between closed it.
func (s *stream) finish(ctx context.Context) error {
	if s.ended == nil {
		if s.runID == "" {
			return errCut
		}
		run, err := s.a.Run(ctx, s.thread, s.runID)
		switch {
		case errors.Is(err, client.NotFound): // it went with its thread
			run.Status = RunInterrupted
		case err != nil:
			return err
		case !run.Status.Ended():
			return errCut
		}
		s.ended = &End{run.Status}
	}
	data, err := json.Marshal(s.ended)
	if err != nil {
		return err
	}
	s.left = !s.yield(Event{Name: "end", ID: s.last, Data: data, End: s.ended}, nil)
	return nil
}

// locate learns from an answer where its run is joined again. A place elsewhere is none:
// the token goes to the daemon alone.
func (s *stream) locate(h http.Header) {
	if place := h.Get("Location"); strings.HasPrefix(place, "/threads/") {
		s.place = place
	} else if place := h.Get("Content-Location"); s.place == "" && strings.HasPrefix(place, "/threads/") {
		s.place = place + "/stream"
	}
	if _, id, ok := strings.Cut(h.Get("Content-Location"), "/runs/"); ok && s.runID == "" {
		s.runID = id
	}
}

// activity reads a body and notes that there is life.
type activity struct {
	io.Reader
	alive *time.Timer
}

func (a activity) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if n > 0 {
		a.alive.Reset(silence)
	}
	return n, err
}
