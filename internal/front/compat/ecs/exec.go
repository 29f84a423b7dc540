package ecs

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/program"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/git"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	// syncWait is how long an answer of sync waits; then it is a 408, and
	// the command goes on.
	syncWait = 30 * time.Second
	// defaultTimeout is a command's time limit unless it is given.
	defaultTimeout = 300 * time.Second
	// historyOutput is how much output, in bytes of each stream, an entry
	// of a history has; an operation by itself has more.
	historyOutput = 16 << 10
	// historyBytes is where a page of a history ends early.
	historyBytes = 2 << 20
	timedOut     = 124 // the exit code of a command whose time was over
)

// Exec runs a command in the session's shell.
type Exec struct {
	Cmd            string            `json:"cmd"`
	Cwd            string            `json:"cwd,omitempty" doc:"For this command only; default where the shell is."`
	TimeoutSeconds *float64          `json:"timeout_seconds,omitempty" doc:"Default 300; 0: none."`
	Env            map[string]string `json:"env,omitempty" doc:"For this command only."`
	Sync           bool              `json:"sync,omitempty" doc:"Answer when it has ended; 408 after 30 seconds."`
}

// Accepted is an operation that goes on.
type Accepted struct {
	Seq    int64  `json:"seq"`
	Status string `json:"status"`
}

// Done is an operation that has ended.
type Done struct {
	Seq    int64  `json:"seq"`
	Status string `json:"status" enum:"done,error" doc:"done with any exit code; error when something else ended it."`
	Result Result `json:"result"`
}

// GoesOn is the answer of sync to what takes longer.
type GoesOn struct {
	Error  string `json:"error" enum:"timeout"`
	Detail string `json:"detail"`
	Seq    int64  `json:"seq"`
}

// Result is what came of an operation.
type Result struct {
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
	ExitCode   int    `json:"exit_code" doc:"124 after a timeout; -1 when nobody knows."`
	DurationMS int64  `json:"duration_ms"`
	// Cubby's own.
	Reason    string             `json:"reason,omitempty" doc:"Why it ended, unless by itself."`
	Truncated *httpapi.Truncated `json:"truncated,omitempty"`
	Operation any                `json:"operation,omitempty" doc:"The typed result of an operation of git."`
}

// Event is an operation with what was asked and what came of it.
type Event struct {
	Seq         int64   `json:"seq"`
	Status      string  `json:"status" enum:"pending,running,done,error"`
	Kind        string  `json:"kind" example:"exec_submit"`
	Payload     any     `json:"payload"`
	Result      *Result `json:"result"`
	SubmittedAt int64   `json:"submitted_at"`
	CompletedAt *int64  `json:"completed_at"`
}

// History is a part of a session's operations.
type History struct {
	Events  []Event `json:"events" nullable:"false"`
	HasMore bool    `json:"has_more"`
}

func (d *dialect) exec(w http.ResponseWriter, r *http.Request) error {
	var in Exec
	if err := d.ReadBody(r, &in); err != nil {
		return err
	}
	if in.Cmd == "" {
		return errs.E(errs.Invalid, "cmd: required")
	}
	limit := defaultTimeout
	if in.TimeoutSeconds != nil {
		var err error
		if limit, err = front.Seconds("timeout_seconds", *in.TimeoutSeconds); err != nil {
			return err
		}
	}
	return d.run(w, r, in.Sync, func(ctx context.Context, wait time.Duration, caps live.OutputCaps) (live.Result, error) {
		return d.Core.Execs().Run(ctx, r.PathValue("id"), sandbox.ExecSpec{
			Shell: in.Cmd, Cwd: in.Cwd, Env: in.Env, Timeout: &limit, Session: session,
		}, wait, caps)
	})
}

// run answers with an operation that run has started.
func (d *dialect) run(w http.ResponseWriter, r *http.Request, sync bool, run func(context.Context, time.Duration, live.OutputCaps) (live.Result, error)) error {
	wait := time.Duration(0)
	if sync {
		wait = syncWait
	}
	ctx, done := d.UntilDrain(r.Context())
	defer done()
	res, err := run(ctx, wait, httpapi.CapsOf(nil))
	if err != nil && (res.Exec.Seq == 0 || r.Context().Err() != nil || !d.Drains()) {
		return notActive(err)
	}
	switch {
	case !sync:
		front.WriteJSON(w, http.StatusAccepted, Accepted{Seq: res.Exec.Seq, Status: string(sandbox.ExecPending)})
	case res.Exec.Status.Finished():
		var long httpapi.LongTexts
		d.WriteLong(r.Context(), w, http.StatusOK, Done{Seq: res.Exec.Seq, Status: string(res.Exec.Status), Result: resultOf(r.Context(), res, &long)}, &long)
	default:
		front.WriteJSON(w, http.StatusRequestTimeout, GoesOn{"timeout", "the command goes on: ask for its event", res.Exec.Seq})
	}
	return nil
}

func resultOf(ctx context.Context, res live.Result, long *httpapi.LongTexts) Result {
	x := res.Exec
	out := Result{
		Stdout: string(res.Stdout), Stderr: string(res.Stderr), ExitCode: httpapi.ExitCode(x.Exit), DurationMS: x.Took().Milliseconds(),
		Operation: front.RawJSON(x.Result),
	}
	if res.Long != nil {
		out.Stdout, out.Stderr = long.Plain(ctx, res.Long.Stdout), long.Plain(ctx, res.Long.Stderr)
	}
	if x.Spec.Kind != "" && x.Spec.Cell == nil {
		out.Stdout = "" // it is for programs, and Operation is made of it
	}
	if x.Exit != nil && x.Exit.Reason != sandbox.EndExited {
		out.Reason = string(x.Exit.Reason)
		out.Stderr += httpapi.EndText(x.Exit)
		if x.Exit.Reason == sandbox.EndTimeout {
			out.ExitCode = timedOut
		}
	}
	if res.StdoutCut > 0 || res.StderrCut > 0 {
		out.Truncated = &httpapi.Truncated{Stdout: res.StdoutCut, Stderr: res.StderrCut}
	}
	return out
}

func eventOf(ctx context.Context, res live.Result, long *httpapi.LongTexts) Event {
	x := res.Exec
	out := Event{Seq: x.Seq, Status: string(x.Status), Kind: "exec_submit", SubmittedAt: x.CreatedAt.UnixMilli()}
	switch {
	case x.Spec.Cell != nil:
		out.Kind, out.Payload = "code_run", x.Spec.Cell
	case x.Spec.Kind != "":
		out.Kind, out.Payload = strings.ReplaceAll(x.Spec.Kind, ".", "_"), front.RawJSON(x.Spec.Detail)
	case x.Spec.Terminal != "":
		out.Kind = "terminal_open"
		out.Payload = struct {
			Name string `json:"name"`
			Cmd  string `json:"cmd,omitempty"`
		}{x.Spec.Terminal, x.Spec.Shell}
	default:
		var limit float64
		if x.Spec.Timeout != nil {
			limit = x.Spec.Timeout.Seconds()
		}
		cmd := any(x.Spec.Shell)
		if x.Spec.Argv != nil {
			cmd = x.Spec.Argv
		}
		out.Payload = struct {
			Cmd            any     `json:"cmd"`
			Cwd            string  `json:"cwd,omitempty"`
			TimeoutSeconds float64 `json:"timeout_seconds"`
		}{cmd, x.Spec.Cwd, limit}
	}
	if x.Status.Finished() {
		result, at := resultOf(ctx, res, long), x.FinishedAt.UnixMilli()
		out.Result, out.CompletedAt = &result, &at
	}
	return out
}

func (d *dialect) event(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	seq, err := strconv.ParseInt(r.PathValue("seq"), 10, 64)
	if err != nil {
		return errs.E(errs.Invalid, "seq: not a number")
	}
	res, err := d.Core.Execs().Result(r.Context(), id, seq, httpapi.CapsOf(nil))
	if errs.KindOf(err) == errs.NotFound {
		if _, e := d.Core.Execs().List(r.Context(), id, live.ExecQuery{Limit: 1}); e == nil {
			return &fault{http.StatusNotFound, "event_not_found", err}
		}
	}
	if err != nil {
		return err
	}
	if !res.Exec.Status.Finished() {
		front.WriteJSON(w, http.StatusAccepted, Accepted{Seq: seq, Status: string(res.Exec.Status)})
		return nil
	}
	var long httpapi.LongTexts
	d.WriteLong(r.Context(), w, http.StatusOK, eventOf(r.Context(), res, &long), &long)
	return nil
}

func (d *dialect) history(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	limit, err := queryNumber(r.URL.Query(), "limit", 50, 1, 999)
	if err != nil {
		return err
	}
	after, err := queryNumber(r.URL.Query(), "after_seq", 0, 0, 1<<62)
	if err != nil {
		return err
	}
	execs, err := d.Core.Execs().List(r.Context(), id, live.ExecQuery{AfterSeq: after, Limit: int(limit) + 1})
	if err != nil {
		return err
	}
	out := History{Events: []Event{}, HasMore: len(execs) > int(limit)}
	held := int64(0)
	for i, x := range execs[:min(len(execs), int(limit))] {
		if held >= historyBytes {
			out.HasMore = true
			break
		}
		res := live.Result{Exec: x}
		if x.Status.Finished() {
			if res, err = d.Core.Execs().Result(r.Context(), id, x.Seq, live.OutputCaps{Stdout: historyOutput, Stderr: historyOutput}); err != nil {
				return err
			}
		}
		more := x.Bytes() + sandbox.TextBytes(res.Stdout) + sandbox.TextBytes(res.Stderr)
		if err := d.Charge(r.Context(), 3*more); err != nil {
			return err
		}
		held += more
		out.Events = append(out.Events, eventOf(r.Context(), res, nil))
		if i == len(execs)-1 && !out.HasMore { // a list of long commands may be short
			more, err := d.Core.Execs().List(r.Context(), id, live.ExecQuery{AfterSeq: x.Seq, Limit: 1})
			if err != nil {
				return err
			}
			out.HasMore = len(more) > 0
		}
	}
	front.WriteJSON(w, http.StatusOK, out)
	return nil
}

func queryNumber(q url.Values, name string, unless, least, most int64) (int64, error) {
	if !q.Has(name) {
		return unless, nil
	}
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil || n < least || n > most {
		return 0, errs.E(errs.Invalid, "%s: a number from %d to %d", name, least, most)
	}
	return n, nil
}

// Clone clones a repository.
type Clone struct {
	URL  string `json:"url"`
	Dest string `json:"dest,omitempty" doc:"Default /workspace, which has to be empty then."`
}

// Commit commits.
type Commit struct {
	Message string   `json:"message"`
	Files   []string `json:"files,omitempty" doc:"Default: everything that differs."`

	Path string `json:"path,omitempty" doc:"Cubby's own: the repository. Default: the last clone, or /workspace."`
}

func (d *dialect) clone(w http.ResponseWriter, r *http.Request) error {
	var in Clone
	if err := d.ReadBody(r, &in); err != nil {
		return err
	}
	if in.Dest == "" {
		in.Dest = sandbox.WorkspaceDir
	}
	return d.runGit(w, r, git.Clone{URL: in.URL, Dest: in.Dest})
}

func (d *dialect) commit(w http.ResponseWriter, r *http.Request) error {
	var in Commit
	if err := d.ReadBody(r, &in); err != nil {
		return err
	}
	if in.Path == "" {
		var err error
		if in.Path, err = d.Core.Git().LastClone(r.Context(), r.PathValue("id")); err != nil {
			return err
		}
	}
	return d.runGit(w, r, git.Commit{Path: in.Path, Message: in.Message, Files: in.Files, All: len(in.Files) == 0})
}

func (d *dialect) runGit(w http.ResponseWriter, r *http.Request, op git.Operation) error {
	limit := defaultTimeout
	return d.run(w, r, false, func(ctx context.Context, wait time.Duration, caps live.OutputCaps) (live.Result, error) {
		return d.Core.Git().Run(ctx, r.PathValue("id"), op, program.GitOptions{Session: session, Timeout: &limit}, wait, caps)
	})
}
