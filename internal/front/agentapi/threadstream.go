package agentapi

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strconv"
	"strings"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front/agentapi/modes"
	"github.com/cubbyhq/cubby/internal/front/sse"
)

// threadPosition is where in the stream of a thread a client was: in which of its
// runs, and where in that one.
type threadPosition struct {
	seq int64
	at  position
}

func (p threadPosition) String() string { return strconv.FormatInt(p.seq, 10) + "/" + p.at.String() }

func parseThreadPosition(id string) (threadPosition, error) {
	if id == "" || id == beginning {
		return threadPosition{}, nil
	}
	seq, rest, ok := strings.Cut(id, "/")
	n, err := strconv.ParseInt(seq, 10, 64)
	at, err2 := parsePosition(rest)
	if !ok || err != nil || err2 != nil || n <= 0 || at == (position{}) {
		return threadPosition{}, errs.E(errs.Invalid, "Last-Event-ID: not an id of this stream").Hint("%s is the beginning", beginning)
	}
	return threadPosition{n, at}, nil
}

// threadStream shows the runs of a thread, one after the other, for as long as the
// client stays: those that go on, and those that come. With Last-Event-ID it begins
// where the client was, or with the first run that there is.
func (d *door) threadStream(w http.ResponseWriter, r *http.Request) error {
	ctx, thread := r.Context(), r.PathValue("thread_id")
	header := r.Header.Get("Last-Event-ID")
	from, err := parseThreadPosition(header)
	if err != nil {
		return err
	}
	// What has ended before is no news; and of a thread that is not there, this says so.
	coming, err := d.Runs.Coming(ctx, thread)
	if err != nil {
		return err
	}
	if header == "" {
		from.seq = coming
	}
	var names []string
	for _, name := range listIn(r.URL.Query(), "stream_mode") {
		if name != "run_modes" && name != "lifecycle" && name != "state_update" {
			names = append(names, name)
		}
	}
	if _, err := modes.Parse(names); err != nil {
		return err
	}
	w.Header().Set("Location", "/threads/"+r.PathValue("thread_id")+"/stream")
	s, err := sse.New(w, http.StatusOK)
	if err != nil {
		return nil // the client is gone
	}
	t := &threadView{door: d, thread: thread, names: names, from: from, view: view{stream: s, id: beginning, states: &states{threads: d.Threads, thread: thread}}}
	err = sse.Pump(ctx, d.Life.Done(), t.follow, d.heartbeat, func(e threadEvent) error { return t.send(ctx, e) }, func() error { return s.Comment("heartbeat") })
	t.ended = false // of a thread there is no end
	d.finish(ctx, &t.view, err)
	return nil
}

// threadEvent is an event of one run of a thread.
type threadEvent struct {
	run conversation.Run
	rec conversation.Recorded
}

type threadView struct {
	view

	door   *door
	thread string
	names  []string
	from   threadPosition
	seq    int64 // of the run that is shown
}

// follow yields what the thread's runs tell.
func (t *threadView) follow(ctx context.Context) iter.Seq2[threadEvent, error] {
	return func(yield func(threadEvent, error) bool) {
		for next, ended := t.from.seq, true; ended; next++ {
			run, err := t.door.Runs.Next(ctx, t.thread, next)
			if err != nil {
				yield(threadEvent{}, err)
				return
			}
			next, ended = run.Seq, false
			for rec, err := range t.door.Runs.Follow(ctx, t.thread, run.ID, 0) {
				if errors.Is(err, errs.NotFound) {
					ended = true // it was taken back; of a thread that is gone, Next says so
					break
				}
				if !yield(threadEvent{run, rec}, err) || err != nil {
					return
				}
				ended = rec.Event.Ended != nil
			}
		}
	}
}

func (t *threadView) send(ctx context.Context, e threadEvent) error {
	if e.run.Seq != t.seq {
		names := t.names
		if len(names) == 0 {
			names = e.run.Request.StreamMode
		}
		set, err := modes.Parse(names)
		if err != nil {
			return err
		}
		about, err := t.door.aboutRun(ctx, t.thread, e.run)
		if err != nil {
			return err
		}
		t.seq, t.renderer = e.run.Seq, modes.New(about, set)
		t.view.from = position{}
		if t.seq == t.from.seq {
			t.view.from = t.from.at
		}
	}
	return t.view.send(ctx, e.rec, func(p position) string { return threadPosition{e.run.Seq, p}.String() })
}
