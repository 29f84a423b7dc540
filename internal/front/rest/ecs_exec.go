package rest

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/git"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	// ecsSyncWait is how long an answer of sync waits; then it is a 408, and
	// the command goes on.
	ecsSyncWait = 30 * time.Second
	// ecsTimeout is a command's time limit unless it is given.
	ecsTimeout = 300 * time.Second
	// ecsHistoryOutput is how much output, in bytes of each stream, an entry
	// of a history has; an operation by itself has more.
	ecsHistoryOutput = 16 << 10
	// ecsHistoryBytes is where a page of a history ends early.
	ecsHistoryBytes = 2 << 20
	ecsTimedOut     = 124 // the exit code of a command whose time was over
)

// ECSExec runs a command in the session's shell.
type ECSExec struct {
	Cmd            string            `json:"cmd"`
	Cwd            string            `json:"cwd,omitempty" doc:"For this command only; default where the shell is."`
	TimeoutSeconds *float64          `json:"timeout_seconds,omitempty" doc:"Default 300; 0: none."`
	Env            map[string]string `json:"env,omitempty" doc:"For this command only."`
	Sync           bool              `json:"sync,omitempty" doc:"Answer when it has ended; 408 after 30 seconds."`
}

// ECSAccepted is an operation that goes on.
type ECSAccepted struct {
	Seq    int64  `json:"seq"`
	Status string `json:"status"`
}

// ECSDone is an operation that has ended.
type ECSDone struct {
	Seq    int64     `json:"seq"`
	Status string    `json:"status" enum:"done,error" doc:"done with any exit code; error when something else ended it."`
	Result ECSResult `json:"result"`
}

// ECSGoesOn is the answer of sync to what takes longer.
type ECSGoesOn struct {
	Error  string `json:"error" enum:"timeout"`
	Detail string `json:"detail"`
	Seq    int64  `json:"seq"`
}

// ECSResult is what came of an operation.
type ECSResult struct {
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
	ExitCode   int    `json:"exit_code" doc:"124 after a timeout; -1 when nobody knows."`
	DurationMS int64  `json:"duration_ms"`
	// Cubby's own.
	Reason    string     `json:"reason,omitempty" doc:"Why it ended, unless by itself."`
	Truncated *Truncated `json:"truncated,omitempty"`
	Operation any        `json:"operation,omitempty" doc:"The typed result of an operation of git."`
}

// ECSEvent is an operation with what was asked and what came of it.
type ECSEvent struct {
	Seq         int64      `json:"seq"`
	Status      string     `json:"status" enum:"pending,running,done,error"`
	Kind        string     `json:"kind" example:"exec_submit"`
	Payload     any        `json:"payload"`
	Result      *ECSResult `json:"result"`
	SubmittedAt int64      `json:"submitted_at"`
	CompletedAt *int64     `json:"completed_at"`
}

// ECSHistory is a part of a session's operations.
type ECSHistory struct {
	Events  []ECSEvent `json:"events" nullable:"false"`
	HasMore bool       `json:"has_more"`
}

func (d *Door) ecsExec(w http.ResponseWriter, r *http.Request) error {
	var in ECSExec
	if err := d.body(r, &in); err != nil {
		return err
	}
	if in.Cmd == "" {
		return errs.E(errs.Invalid, "cmd: required")
	}
	limit := ecsTimeout
	if in.TimeoutSeconds != nil {
		var err error
		if limit, err = seconds("timeout_seconds", *in.TimeoutSeconds); err != nil {
			return err
		}
	}
	return d.ecsRun(w, r, in.Sync, func(ctx context.Context, wait time.Duration, caps core.OutputCaps) (core.Result, error) {
		return d.core.RunExec(ctx, r.PathValue("id"), sandbox.ExecSpec{
			Shell: in.Cmd, Cwd: in.Cwd, Env: in.Env, Timeout: &limit, Session: ecsSession,
		}, wait, caps)
	})
}

// ecsRun answers with an operation that run has started.
func (d *Door) ecsRun(w http.ResponseWriter, r *http.Request, sync bool, run func(context.Context, time.Duration, core.OutputCaps) (core.Result, error)) error {
	wait := time.Duration(0)
	if sync {
		wait = ecsSyncWait
	}
	ctx, done := d.untilDrain(r.Context())
	defer done()
	res, err := run(ctx, wait, capsOf(nil))
	if err != nil && (res.Exec.Seq == 0 || r.Context().Err() != nil || !d.drains()) {
		return notActive(err)
	}
	switch {
	case !sync:
		front.WriteJSON(w, http.StatusAccepted, ECSAccepted{Seq: res.Exec.Seq, Status: string(sandbox.ExecPending)})
	case res.Exec.Status.Finished():
		var long longTexts
		d.writeLong(r.Context(), w, http.StatusOK, ECSDone{Seq: res.Exec.Seq, Status: string(res.Exec.Status), Result: ecsResult(r.Context(), res, &long)}, &long)
	default:
		front.WriteJSON(w, http.StatusRequestTimeout, ECSGoesOn{"timeout", "the command goes on: ask for its event", res.Exec.Seq})
	}
	return nil
}

func ecsResult(ctx context.Context, res core.Result, long *longTexts) ECSResult {
	x := res.Exec
	out := ECSResult{
		Stdout: string(res.Stdout), Stderr: string(res.Stderr), ExitCode: exitCode(x.Exit), DurationMS: x.Took().Milliseconds(),
		Operation: rawJSON(x.Result),
	}
	if res.Long != nil {
		out.Stdout, out.Stderr = long.plain(ctx, res.Long.Stdout), long.plain(ctx, res.Long.Stderr)
	}
	if x.Spec.Kind != "" && x.Spec.Cell == nil {
		out.Stdout = "" // it is for programs, and Operation is made of it
	}
	if x.Exit != nil && x.Exit.Reason != sandbox.EndExited {
		out.Reason = string(x.Exit.Reason)
		out.Stderr += ending(x.Exit)
		if x.Exit.Reason == sandbox.EndTimeout {
			out.ExitCode = ecsTimedOut
		}
	}
	if res.StdoutCut > 0 || res.StderrCut > 0 {
		out.Truncated = &Truncated{Stdout: res.StdoutCut, Stderr: res.StderrCut}
	}
	return out
}

func ecsEvent(ctx context.Context, res core.Result, long *longTexts) ECSEvent {
	x := res.Exec
	out := ECSEvent{Seq: x.Seq, Status: string(x.Status), Kind: "exec_submit", SubmittedAt: x.CreatedAt.UnixMilli()}
	switch {
	case x.Spec.Cell != nil:
		out.Kind, out.Payload = "code_run", x.Spec.Cell
	case x.Spec.Kind != "":
		out.Kind, out.Payload = strings.ReplaceAll(x.Spec.Kind, ".", "_"), rawJSON(x.Spec.Detail)
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
		out.Payload = struct {
			Cmd            Command `json:"cmd"`
			Cwd            string  `json:"cwd,omitempty"`
			TimeoutSeconds float64 `json:"timeout_seconds"`
		}{Command{Shell: x.Spec.Shell, Argv: x.Spec.Argv}, x.Spec.Cwd, limit}
	}
	if x.Status.Finished() {
		result, at := ecsResult(ctx, res, long), x.FinishedAt.UnixMilli()
		out.Result, out.CompletedAt = &result, &at
	}
	return out
}

func (d *Door) ecsEvent(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	seq, err := strconv.ParseInt(r.PathValue("seq"), 10, 64)
	if err != nil {
		return errs.E(errs.Invalid, "seq: not a number")
	}
	res, err := d.core.Result(r.Context(), id, seq, capsOf(nil))
	if errs.KindOf(err) == errs.NotFound {
		if _, e := d.core.Execs(r.Context(), id, core.ExecQuery{Limit: 1}); e == nil {
			return &ecsFault{http.StatusNotFound, "event_not_found", err}
		}
	}
	if err != nil {
		return err
	}
	if !res.Exec.Status.Finished() {
		front.WriteJSON(w, http.StatusAccepted, ECSAccepted{Seq: seq, Status: string(res.Exec.Status)})
		return nil
	}
	var long longTexts
	d.writeLong(r.Context(), w, http.StatusOK, ecsEvent(r.Context(), res, &long), &long)
	return nil
}

func (d *Door) ecsHistory(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	limit, err := queryNumber(r.URL.Query(), "limit", 50, 1, 999)
	if err != nil {
		return err
	}
	after, err := queryNumber(r.URL.Query(), "after_seq", 0, 0, 1<<62)
	if err != nil {
		return err
	}
	execs, err := d.core.Execs(r.Context(), id, core.ExecQuery{AfterSeq: after, Limit: int(limit) + 1})
	if err != nil {
		return err
	}
	out := ECSHistory{Events: []ECSEvent{}, HasMore: len(execs) > int(limit)}
	held := int64(0)
	for i, x := range execs[:min(len(execs), int(limit))] {
		if held >= ecsHistoryBytes {
			out.HasMore = true
			break
		}
		res := core.Result{Exec: x}
		if x.Status.Finished() {
			if res, err = d.core.Result(r.Context(), id, x.Seq, core.OutputCaps{Stdout: ecsHistoryOutput, Stderr: ecsHistoryOutput}); err != nil {
				return err
			}
		}
		more := x.Bytes() + sandbox.TextBytes(res.Stdout) + sandbox.TextBytes(res.Stderr)
		if err := d.charge(r.Context(), 3*more); err != nil {
			return err
		}
		held += more
		out.Events = append(out.Events, ecsEvent(r.Context(), res, nil))
		if i == len(execs)-1 && !out.HasMore { // a list of long commands may be short
			more, err := d.core.Execs(r.Context(), id, core.ExecQuery{AfterSeq: x.Seq, Limit: 1})
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

// ECSClone clones a repository.
type ECSClone struct {
	URL  string `json:"url"`
	Dest string `json:"dest,omitempty" doc:"Default /workspace, which has to be empty then."`
}

// ECSCommit commits.
type ECSCommit struct {
	Message string   `json:"message"`
	Files   []string `json:"files,omitempty" doc:"Default: everything that differs."`

	Path string `json:"path,omitempty" doc:"Cubby's own: the repository. Default: the last clone, or /workspace."`
}

func (d *Door) ecsClone(w http.ResponseWriter, r *http.Request) error {
	var in ECSClone
	if err := d.body(r, &in); err != nil {
		return err
	}
	if in.Dest == "" {
		in.Dest = sandbox.WorkspaceDir
	}
	return d.ecsGit(w, r, git.Clone{URL: in.URL, Dest: in.Dest})
}

func (d *Door) ecsCommit(w http.ResponseWriter, r *http.Request) error {
	var in ECSCommit
	if err := d.body(r, &in); err != nil {
		return err
	}
	if in.Path == "" {
		var err error
		if in.Path, err = d.core.LastClone(r.Context(), r.PathValue("id")); err != nil {
			return err
		}
	}
	return d.ecsGit(w, r, git.Commit{Path: in.Path, Message: in.Message, Files: in.Files, All: len(in.Files) == 0})
}

func (d *Door) ecsGit(w http.ResponseWriter, r *http.Request, op git.Operation) error {
	limit := ecsTimeout
	return d.ecsRun(w, r, false, func(ctx context.Context, wait time.Duration, caps core.OutputCaps) (core.Result, error) {
		return d.core.RunGit(ctx, r.PathValue("id"), op, core.GitOptions{Session: ecsSession, Timeout: &limit}, wait, caps)
	})
}
