package rest

import (
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// defaultWait is how long a request waits that does not say it.
const defaultWait = 60 * time.Second

// ExecInput starts a command.
type ExecInput struct {
	Cmd            Command           `json:"cmd"`
	Cwd            string            `json:"cwd,omitempty" doc:"Default /workspace."`
	Env            map[string]string `json:"env,omitempty" doc:"On top of the sandbox's."`
	User           string            `json:"user,omitempty" doc:"Default: the sandbox's."`
	Session        string            `json:"session,omitempty" maxLength:"63" doc:"Run it in this session shell: one command after another, with one state."`
	Stdin          bool              `json:"stdin,omitempty" doc:"Keep standard input open for POST …/stdin."`
	PTY            *WindowSize       `json:"pty,omitempty" doc:"Give the command a terminal; stdout and stderr are then one stream."`
	TimeoutSeconds *float64          `json:"timeout_seconds,omitempty" minimum:"0" doc:"Kills the whole process tree; 0: none. Default: the sandbox's exec_timeout_seconds."`
	Wait           *bool             `json:"wait,omitempty" doc:"Default true: answer when the command has ended."`
	WaitSeconds    *float64          `json:"wait_seconds,omitempty" minimum:"0" maximum:"600" doc:"Default 60: after that 202; the command goes on."`
	Stream         bool              `json:"stream,omitempty" doc:"Answer with Server-Sent Events, as Accept: text/event-stream does."`
	MaxOutputBytes *int64            `json:"max_output_bytes,omitempty" minimum:"0" maximum:"67108864" doc:"Largest stdout and stderr of the answer, each; default 8 MiB. The whole output is at …/output."`
}

// WindowSize is a terminal's size in characters.
type WindowSize struct {
	Cols uint16 `json:"cols" minimum:"1"`
	Rows uint16 `json:"rows" minimum:"1"`
}

func (in *ExecInput) spec() (sandbox.ExecSpec, error) {
	spec := sandbox.ExecSpec{
		Argv: in.Cmd.Argv, Shell: in.Cmd.Shell, Cwd: in.Cwd, Env: in.Env, User: in.User, Stdin: in.Stdin,
		Session: in.Session,
	}
	if err := in.Cmd.validate(); err != nil {
		return spec, err
	}
	if in.PTY != nil {
		spec.PTY = &sandbox.WindowSize{Cols: in.PTY.Cols, Rows: in.PTY.Rows}
	}
	if in.TimeoutSeconds != nil {
		d, err := front.Seconds("timeout_seconds", *in.TimeoutSeconds)
		if err != nil {
			return spec, err
		}
		spec.Timeout = &d
	}
	return spec, nil
}

func waitTime(given *float64) (time.Duration, error) {
	if given == nil {
		return defaultWait, nil
	}
	d, err := front.Seconds("wait_seconds", *given)
	if err == nil && d > httpapi.LongestWait {
		err = errs.E(errs.Invalid, "wait_seconds: at most %d", int(httpapi.LongestWait.Seconds()))
	}
	return d, err
}

// Exec is the canonical JSON of a command.
type Exec struct {
	Seq               int64              `json:"seq" doc:"1, 2, 3 … within the sandbox."`
	Status            string             `json:"status" enum:"pending,running,done,error"`
	Kind              execKind           `json:"kind,omitempty" doc:"The operation; absent for a plain command."`
	Session           string             `json:"session,omitempty"`
	Terminal          string             `json:"terminal,omitempty" doc:"The terminal whose program this is."`
	Service           string             `json:"service,omitempty" doc:"The service whose run this is."`
	Cmd               Command            `json:"cmd" doc:"Empty for a cell."`
	Code              string             `json:"code,omitempty" doc:"Of a cell."`
	Kernel            string             `json:"kernel,omitempty" doc:"The kernel that runs the cell."`
	Language          string             `json:"language,omitempty" doc:"Of the kernel, as the cell asked for it."`
	Cwd               string             `json:"cwd,omitempty"`
	User              string             `json:"user,omitempty"`
	Stdout            *string            `json:"stdout,omitempty"`
	Stderr            *string            `json:"stderr,omitempty"`
	StdoutEncoding    string             `json:"stdout_encoding,omitempty" enum:"base64" doc:"Given when stdout is not UTF-8."`
	StderrEncoding    string             `json:"stderr_encoding,omitempty" enum:"base64" doc:"Given when stderr is not UTF-8."`
	ExitCode          *int               `json:"exit_code" doc:"128 + signal when a signal ended it; null while it runs and when nobody knows."`
	Signal            string             `json:"signal,omitempty" doc:"SIGKILL, for example."`
	Reason            string             `json:"reason,omitempty" enum:"exited,timeout,oom,killed,disk_full,sandbox_destroyed,sandbox_stopped,container_died,lost,not_started,kernel_died" doc:"Why it ended."`
	Message           string             `json:"message,omitempty" doc:"More about the end, for people."`
	DurationMS        int64              `json:"duration_ms"`
	Truncated         *httpapi.Truncated `json:"truncated,omitempty" doc:"Given when output was left out."`
	Detail            any                `json:"detail,omitempty" doc:"What an operation was asked."`
	Result            any                `json:"result,omitempty" doc:"What came of an operation."`
	OutputPruned      bool               `json:"output_pruned,omitempty" doc:"The output was removed to make room for later ones; stdout and stderr are empty because of that."`
	RestoreIncomplete string             `json:"restore_incomplete,omitempty" doc:"Given when the sandbox was woken for this and its memory was lost: what is gone, and what is not. The header Cubby-Restore-Incomplete of the answer says the same."`
	CreatedAt         time.Time          `json:"created_at"`
	StartedAt         *time.Time         `json:"started_at,omitempty"`
	FinishedAt        *time.Time         `json:"finished_at,omitempty"`
}

func execJSON(e sandbox.Exec, now time.Time) Exec {
	out := Exec{
		Seq: e.Seq, Status: string(e.Status), Kind: execKind(e.Spec.Kind), Session: e.Spec.Session, Terminal: e.Spec.Terminal,
		Detail: front.RawJSON(e.Spec.Detail), Result: front.RawJSON(e.Result), Cmd: asked(e.Spec), Cwd: e.Spec.Cwd, User: e.Spec.User, RestoreIncomplete: front.LossText(e.Spec.RestoreIncomplete),
		CreatedAt: e.CreatedAt.UTC(), StartedAt: timeOrNil(e.StartedAt), FinishedAt: timeOrNil(e.FinishedAt),
	}
	if c := e.Spec.Cell; c != nil {
		out.Code, out.Kernel, out.Language = c.Code, c.Kernel, c.Language
	}
	if run := e.Spec.Service; run != nil {
		out.Service = run.Name
	}
	out.DurationMS = e.Took().Milliseconds()
	if !e.StartedAt.IsZero() && e.FinishedAt.IsZero() {
		out.DurationMS = now.Sub(e.StartedAt).Milliseconds()
	}
	if x := e.Exit; x != nil {
		out.ExitCode, out.Signal, out.Reason, out.Message = x.Code, x.Signal, string(x.Reason), x.Message
		if x.StdoutCut > 0 || x.StderrCut > 0 || x.RichCut > 0 {
			out.Truncated = &httpapi.Truncated{Stdout: x.StdoutCut, Stderr: x.StderrCut, Rich: x.RichCut}
		}
	}
	return out
}
