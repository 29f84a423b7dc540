package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/front/sse"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// SeqInput names an exec.
type SeqInput struct {
	IDInput
	Seq int64 `path:"seq" minimum:"1" doc:"The exec's number."`
}

type execOutput struct{ Body Exec }

// maxStdin bounds one write to standard input.
const maxStdin = 1 << 20

func (d *door) execRoutes() {
	register(d, operation{
		id: "exec", method: http.MethodPost, path: "/v1/sandboxes/{id}/exec", tag: "execs", summary: "Run a command",
		description: "Answers 200 when the command has ended, 202 when it goes on (wait is false, or its time is over), or with Server-Sent Events as GET …/stream does. The command does not depend on the connection.",
		responses: map[string]*huma.Response{
			"200": {Description: "The command has ended, or a stream of its output", Content: execContent(d)},
			"202": {Description: "The command goes on", Content: httpapi.Media("application/json", d.Schema(Exec{}, "Exec"))},
		},
	}, d.exec)
	register(d, operation{
		id: "list-execs", method: http.MethodGet, path: "/v1/sandboxes/{id}/execs", tag: "execs",
		summary:     "List commands by their seq, without output",
		description: "Of long commands and code there are the first 4 KiB. A list of long ones may end before its limit: go on after its last seq until one is empty.",
	}, d.listExecs)
	register(d, operation{
		id: "get-exec", method: http.MethodGet, path: "/v1/sandboxes/{id}/execs/{seq}", tag: "execs",
		summary: "Get a command with its output so far", description: "With wait_seconds it waits for the end first.",
		responses: execResponse(d),
	}, d.getExec)
	register(d, operation{
		id: "signal-exec", method: http.MethodPost, path: "/v1/sandboxes/{id}/execs/{seq}/signal", tag: "execs", status: http.StatusNoContent,
		summary: "Send a signal to a command",
	}, func(ctx context.Context, in *struct {
		SeqInput
		Body SignalInput
	}) (*struct{}, error) {
		return nil, d.Core.Execs().Signal(ctx, in.ID, in.Seq, in.Body.Signal, in.Body.Tree)
	})
	register(d, operation{
		id: "cancel-exec", method: http.MethodPost, path: "/v1/sandboxes/{id}/execs/{seq}/cancel", tag: "execs",
		summary: "Kill a command with its whole process tree", description: "Of a finished command it kills what that left running; its end stays what it was.",
	}, func(ctx context.Context, in *SeqInput) (*execOutput, error) {
		e, err := d.Core.Execs().Cancel(ctx, in.ID, in.Seq)
		if err != nil {
			return nil, err
		}
		return &execOutput{execJSON(e, time.Now())}, nil
	})
	register(d, operation{
		id: "resize-exec", method: http.MethodPost, path: "/v1/sandboxes/{id}/execs/{seq}/resize", tag: "execs", status: http.StatusNoContent,
		summary: "Set the size of a command's terminal",
	}, func(ctx context.Context, in *struct {
		SeqInput
		Body WindowSize
	}) (*struct{}, error) {
		return nil, d.Core.Execs().Resize(ctx, in.ID, in.Seq, sandbox.WindowSize{Cols: in.Body.Cols, Rows: in.Body.Rows})
	})
	const stdin = "/v1/sandboxes/{id}/execs/{seq}/stdin"
	register(d, operation{
		id: "write-stdin", method: http.MethodPost, path: stdin, tag: "execs", summary: "Write to a command's standard input",
		description: "The raw body is written at offset; bytes that were written before are skipped, so a repeat is harmless. The answer says how far the input has come: write again from there.",
	}, d.writeStdin)
	d.Documented(http.MethodPost, stdin).RequestBody = &huma.RequestBody{Content: httpapi.Media("application/octet-stream", nil)}
}

func execContent(d *door) httpapi.Content {
	return orEvents(httpapi.Media("application/json", d.Schema(Exec{}, "Exec")))
}

// execResponse is for an exec that is written by itself.
func execResponse(d *door) map[string]*huma.Response {
	return map[string]*huma.Response{"200": {Description: "OK", Content: httpapi.Media("application/json", d.Schema(Exec{}, "Exec"))}}
}

// SignalInput names a signal and whom it goes to.
type SignalInput struct {
	Signal string `json:"signal" example:"SIGINT"`
	Tree   bool   `json:"tree,omitempty" doc:"Everything that descends from the command, not only its process group."`
}

type execRequest struct {
	exchange
	IDInput
	Body ExecInput
}

func (d *door) exec(ctx context.Context, in *execRequest) (*streamed, error) {
	spec, err := in.Body.spec()
	if err != nil {
		return nil, err
	}
	var res live.Result
	return d.launch(ctx, in.exchange, in.ID, launch{
		stream: in.Body.Stream, wait: in.Body.Wait, seconds: in.Body.WaitSeconds, below: "execs", ended: d.ended,
		start: func() (x sandbox.Exec, err error) {
			res.Exec, err = d.Core.Execs().Start(ctx, in.ID, spec)
			return res.Exec, err
		},
		run: func(ctx context.Context, wait time.Duration) (x sandbox.Exec, err error) {
			res, err = d.Core.Execs().Run(ctx, in.ID, spec, wait, httpapi.CapsOf(in.Body.MaxOutputBytes))
			return res.Exec, err
		},
		answer: func(status int) { d.writeResult(ctx, in.w, status, res) },
	})
}

func wantsEvents(accept string) bool { return httpapi.Accepts(accept, sse.MediaType) }

// writeResult answers with a command and its output, which is read from the
// journal as the client takes it when there is much of it.
func (d *door) writeResult(ctx context.Context, w http.ResponseWriter, status int, res live.Result) {
	var long httpapi.LongTexts
	out := resultJSON(ctx, res, time.Now(), &long)
	if res.Long == nil {
		front.WriteJSON(w, status, out)
		return
	}
	d.WriteLong(ctx, w, status, out, &long)
}

func resultJSON(ctx context.Context, r live.Result, now time.Time, long *httpapi.LongTexts) Exec {
	out := execJSON(r.Exec, now)
	var stdout, stderr string
	if r.Long != nil {
		stdout, out.StdoutEncoding = long.Output(ctx, r.Long.Stdout)
		stderr, out.StderrEncoding = long.Output(ctx, r.Long.Stderr)
	} else {
		stdout, out.StdoutEncoding = front.EncodeText(r.Stdout)
		stderr, out.StderrEncoding = front.EncodeText(r.Stderr)
	}
	out.Stdout, out.Stderr = &stdout, &stderr
	out.OutputPruned = r.Pruned
	cut := httpapi.Truncated{Stdout: r.StdoutCut, Stderr: r.StderrCut}
	if x := r.Exec.Exit; x != nil {
		cut.Rich = x.RichCut
	}
	out.Truncated = nil
	if cut != (httpapi.Truncated{}) {
		out.Truncated = &cut
	}
	return out
}

type listExecsInput struct {
	IDInput
	AfterSeq int64  `query:"after_seq" minimum:"0"`
	Limit    int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Service  string `query:"service" maxLength:"63" doc:"The runs of this service; default: commands."`
}

// ExecList is a part of a sandbox's commands.
type ExecList struct {
	Execs []Exec `json:"execs" nullable:"false"`
}

func (d *door) listExecs(ctx context.Context, in *listExecsInput) (*struct{ Body ExecList }, error) {
	execs, err := d.Core.Execs().List(ctx, in.ID, live.ExecQuery{AfterSeq: in.AfterSeq, Limit: in.Limit, Service: in.Service})
	if err != nil {
		return nil, err
	}
	out := ExecList{Execs: make([]Exec, len(execs))}
	now := time.Now()
	for i, e := range execs {
		out.Execs[i] = execJSON(e, now)
	}
	return &struct{ Body ExecList }{out}, nil
}

type getExecInput struct {
	exchange
	SeqInput
	WaitSeconds    float64 `query:"wait_seconds" minimum:"0" maximum:"600" doc:"Wait for the end that long."`
	MaxOutputBytes int64   `query:"max_output_bytes" minimum:"0" maximum:"67108864" default:"8388608"`
}

func (d *door) getExec(ctx context.Context, in *getExecInput) (*streamed, error) {
	if err := d.await(ctx, in.SeqInput, in.WaitSeconds); err != nil {
		return nil, err
	}
	res, err := d.Core.Execs().Result(ctx, in.ID, in.Seq, httpapi.CapsOf(&in.MaxOutputBytes))
	if err != nil {
		return nil, err
	}
	return stream(func() { d.writeResult(ctx, in.w, http.StatusOK, res) }), nil
}

// await waits for an exec's end, up to the daemon's own.
func (d *door) await(ctx context.Context, in SeqInput, given float64) error {
	wait, err := waitTime(&given)
	if err != nil || wait == 0 {
		return err
	}
	waiting, done := d.UntilDrain(ctx)
	defer done()
	_, err = d.Core.Execs().Wait(waiting, in.ID, in.Seq, wait)
	if err != nil && ctx.Err() == nil && d.Drains() {
		return nil
	}
	return err
}

type stdinInput struct {
	exchange
	SeqInput
	Offset int64 `query:"offset" minimum:"-1" default:"-1" doc:"Where the body belongs in the input; absent: at its end."`
	EOF    bool  `query:"eof" doc:"Nothing follows this body."`
}

// StdinOutput says how far the input has come.
type StdinOutput struct {
	Offset int64 `json:"offset"`
}

func (d *door) writeStdin(ctx context.Context, in *stdinInput) (*struct{ Body StdinOutput }, error) {
	data, err := front.ReadAtMost(in.r.Body, maxStdin)
	if err != nil {
		return nil, err
	}
	offset, err := d.Core.Execs().WriteStdin(ctx, in.ID, in.Seq, in.Offset, data, in.EOF)
	if err != nil {
		return nil, err
	}
	return &struct{ Body StdinOutput }{StdinOutput{offset}}, nil
}
