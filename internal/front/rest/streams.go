package rest

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/front/sse"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// settleTime is how long the row of an exec may lag behind its last journal
// entry.
const settleTime = 5 * time.Second

func (d *door) streamRoutes() {
	register(d, operation{
		id: "stream-exec", method: http.MethodGet, path: "/v1/sandboxes/{id}/execs/{seq}/stream", tag: "execs",
		summary: "Follow a command's output as Server-Sent Events",
		description: "Events: stdout and stderr with {data,encoding,offset}, rich of a cell with what it shows beside text (one of display, result, error, clear, input, kernel, done), ping, and as the last one exit with the exec without its output. " +
			"The id of an event is the offset to resume after, by Last-Event-ID or after. An error event ends a stream that could not go on.",
		responses: map[string]*huma.Response{
			"200": {Description: "Events", Content: events()},
		},
	}, d.streamExec)
	register(d, operation{
		id: "exec-output", method: http.MethodGet, path: "/v1/sandboxes/{id}/execs/{seq}/output", tag: "execs",
		summary: "A command's output so far, raw", description: "Both streams in the order of their arrival; what a cell shows beside text, one JSON object per line, only with stream=rich. With follow it goes on until the command ends.",
		responses: map[string]*huma.Response{"200": {Description: "Bytes", Content: httpapi.Media("application/octet-stream", nil)}},
	}, d.rawOutput)
}

type streamInput struct {
	exchange
	SeqInput
	After       int64  `query:"after" minimum:"0" doc:"Offset; 0 is the start."`
	LastEventID string `header:"Last-Event-ID" doc:"Wins over after."`
}

func (d *door) streamExec(ctx context.Context, in *streamInput) (*streamed, error) {
	after := in.After
	if in.LastEventID != "" {
		n, err := strconv.ParseInt(in.LastEventID, 10, 64)
		if err != nil || n < 0 {
			return nil, errs.E(errs.Invalid, "Last-Event-ID: not an offset")
		}
		after = n
	}
	if err := d.Core.Execs().CheckOutput(ctx, in.ID, in.Seq); err != nil {
		return nil, err
	}
	if in.head() {
		return &streamed{Body: nothing(sse.MediaType)}, nil
	}
	return stream(func() { d.followExec(ctx, in.w, in.ID, in.Seq, after, d.ended) }), nil
}

// followExec writes the whole response; end makes the data of the last event.
// The client may leave at any time: the command does not notice.
func (d *door) followExec(ctx context.Context, w http.ResponseWriter, id string, seq, after int64, end endOf) {
	s, err := sse.New(w, http.StatusOK)
	if err != nil {
		return
	}
	output := sse.NewOutputs(s)
	at := after
	err = sse.Pump(ctx, d.Life.Done(), d.Output(id, seq, after, true), sse.PingEvery, func(e journal.Entry) error {
		if e.Exit == nil {
			at = e.Output.Offset + int64(len(e.Output.Data))
			return output.Add(e.Output)
		}
		if err := output.Flush(); err != nil {
			return err
		}
		return s.Send(at, "exit", end(ctx, id, seq, *e.Exit))
	}, func() error {
		if err := output.Flush(); err != nil {
			return err
		}
		return s.Ping()
	})
	d.failStream(ctx, s, err)
}

// failStream tells an error that came after the response had begun.
func (d *door) failStream(ctx context.Context, s *sse.Stream, err error) {
	if err == nil || ctx.Err() != nil || errors.Is(err, sse.ErrDraining) {
		return // a stream without its last event is resumed by its client
	}
	d.LogInternal(ctx, err)
	s.Fail(ctx, err)
}

// endOf makes the data of a stream's last event.
type endOf func(ctx context.Context, id string, seq int64, exit sandbox.Exit) any

// ended is the exec as its row tells it. The sandbox may be gone together with
// its execs; then the journal's last entry has to do.
func (d *door) ended(ctx context.Context, id string, seq int64, exit sandbox.Exit) any {
	return execJSON(d.finished(ctx, id, seq, exit), time.Now())
}

func (d *door) finished(ctx context.Context, id string, seq int64, exit sandbox.Exit) sandbox.Exec {
	e, err := d.Core.Execs().Wait(ctx, id, seq, settleTime)
	if err != nil || !e.Status.Finished() {
		e.Seq, e.Exit, e.Status = seq, &exit, sandbox.ExecDone
		if exit.Reason != sandbox.EndExited {
			e.Status = sandbox.ExecError
		}
	}
	return e
}

type rawOutputInput struct {
	exchange
	SeqInput
	After  int64  `query:"after" minimum:"0" doc:"Offset over both streams; 0 is the start."`
	Stream string `query:"stream" enum:"stdout,stderr,rich" doc:"Only this one; default both of text."`
	Follow bool   `query:"follow" doc:"Go on until the command ends."`
}

func (in *rawOutputInput) wants(s sandbox.Stream) bool {
	if in.Stream == "" {
		return s != sandbox.Rich
	}
	return in.Stream == s.String()
}

func (d *door) rawOutput(ctx context.Context, in *rawOutputInput) (*streamed, error) {
	if err := d.Core.Execs().CheckOutput(ctx, in.ID, in.Seq); err != nil {
		return nil, err
	}
	if in.head() {
		return &streamed{Body: nothing("application/octet-stream")}, nil
	}
	return stream(func() {
		h := in.w.Header()
		h.Set("Content-Type", "application/octet-stream")
		h.Set("Cache-Control", "no-store")
		in.w.WriteHeader(http.StatusOK)
		control := http.NewResponseController(in.w)
		if in.Follow {
			_ = control.Flush()
		}
		err := sse.Pump(ctx, d.Life.Done(), d.Output(in.ID, in.Seq, in.After, in.Follow), sse.PingEvery, func(e journal.Entry) error {
			if e.Exit != nil || !in.wants(e.Output.Stream) {
				return nil
			}
			if _, err := in.w.Write(e.Output.Data); err != nil {
				return httpapi.Gone(err)
			}
			if in.Follow {
				_ = control.Flush()
			}
			return nil
		}, control.Flush) // keeps a quiet stream from counting as stalled
		d.Abort(ctx, err)
	}), nil
}
