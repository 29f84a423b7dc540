package sandboxed

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/front/sse"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Exec runs a program.
type Exec struct {
	Cmd    []string `json:"cmd"`
	Stream bool     `json:"stream,omitempty"`
}

// Result is how it went.
type Result struct {
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	ExitCode int    `json:"exit_code"`
}

func (d *dialect) exec(w http.ResponseWriter, r *http.Request) error {
	var in Exec
	if err := d.ReadBody(r, &in); err != nil {
		return err
	}
	if len(in.Cmd) == 0 {
		return errs.E(errs.Invalid, "cmd required")
	}
	ctx, id := r.Context(), r.PathValue("id")
	var none time.Duration // sandboxed's execs have no time limit
	spec := sandbox.ExecSpec{Argv: in.Cmd, Timeout: &none}
	if in.Stream {
		e, err := d.Core.Execs().Start(ctx, id, spec)
		if err != nil {
			return noRow(err)
		}
		d.stream(ctx, w, id, e.Seq)
		return nil
	}
	caps := live.OutputCaps{Stdout: httpapi.LargestOutput, Stderr: httpapi.LargestOutput, Hold: httpapi.HeldOutput}
	res, err := d.Core.Execs().Run(ctx, id, spec, httpapi.LongestWait, caps)
	for err == nil && !res.Exec.Status.Finished() {
		if _, err = d.Core.Execs().Wait(ctx, id, res.Exec.Seq, httpapi.LongestWait); err == nil {
			res, err = d.Core.Execs().Result(ctx, id, res.Exec.Seq, caps)
		}
	}
	if err != nil {
		return noRow(err)
	}
	var long httpapi.LongTexts
	out := Result{Stdout: string(res.Stdout), Stderr: string(res.Stderr), ExitCode: httpapi.ExitCode(res.Exec.Exit)}
	if res.Long != nil {
		out.Stdout, out.Stderr = long.Plain(ctx, res.Long.Stdout), long.Plain(ctx, res.Long.Stderr)
	}
	out.Stderr += httpapi.EndText(res.Exec.Exit)
	d.WriteLong(ctx, w, http.StatusOK, out, &long)
	return nil
}

// stream writes standard output as it comes, then what went to
// standard error, then the exit code.
func (d *dialect) stream(ctx context.Context, w http.ResponseWriter, id string, seq int64) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	_ = control.Flush()
	var stderr strings.Builder
	err := sse.Pump(ctx, d.Life.Done(), d.Output(id, seq, 0, true), sse.PingEvery, func(e journal.Entry) error {
		var text []byte
		switch {
		case e.Exit != nil:
			text = []byte("---stderr---\n" + stderr.String() + httpapi.EndText(e.Exit) + "exit_code: " + strconv.Itoa(httpapi.ExitCode(e.Exit)) + "\n")
		case e.Output.Stream == sandbox.Stderr:
			if room := httpapi.DefaultOutput - stderr.Len(); room > 0 {
				stderr.Write(e.Output.Data[:min(room, len(e.Output.Data))])
			}
			return nil
		case e.Output.Stream == sandbox.Stdout:
			text = e.Output.Data
		}
		if _, err := w.Write(text); err != nil {
			return httpapi.Gone(err)
		}
		return control.Flush()
	}, control.Flush) // keeps a quiet stream from counting as stalled
	d.Abort(ctx, err)
}
