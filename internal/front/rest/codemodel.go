package rest

import (
	"time"

	"github.com/cubbyhq/cubby/internal/core/cell"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/kernel"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// CodeInput runs a cell.
type CodeInput struct {
	Code           string            `json:"code" doc:"At most 4 MiB."`
	Kernel         string            `json:"kernel,omitempty" doc:"Its name; made when there is none. Default: the kernel of the language."`
	Language       string            `json:"language,omitempty" example:"python" doc:"python, node, r, bash, or a kernelspec of the image. Default: the kernel's, the sandbox's runtime, python."`
	TimeoutSeconds *float64          `json:"timeout_seconds,omitempty" minimum:"0" doc:"Interrupts the cell; the kernel keeps its state. 0: none. Default: the sandbox's exec_timeout_seconds."`
	Wait           *bool             `json:"wait,omitempty" doc:"Default true: answer when the cell has ended."`
	WaitSeconds    *float64          `json:"wait_seconds,omitempty" minimum:"0" maximum:"600" doc:"Default 60: after that 202; the cell goes on."`
	Stream         bool              `json:"stream,omitempty" doc:"Answer with Server-Sent Events, as Accept: text/event-stream does."`
	Stdin          bool              `json:"stdin,omitempty" doc:"Let the code ask for input, to be written to POST …/execs/{seq}/stdin. Otherwise asking is an error."`
	Cwd            string            `json:"cwd,omitempty" doc:"Of a kernel that is made for the cell."`
	Env            map[string]string `json:"env,omitempty" doc:"Of a kernel that is made for the cell, on top of the sandbox's."`
}

func (in *CodeInput) request() (cell.Request, error) {
	r := cell.Request{Kernel: in.Kernel, Language: in.Language, Code: in.Code, Stdin: in.Stdin, Cwd: in.Cwd, Env: in.Env}
	if in.TimeoutSeconds != nil {
		d, err := front.Seconds("timeout_seconds", *in.TimeoutSeconds)
		if err != nil {
			return r, err
		}
		r.Timeout = &d
	}
	return r, nil
}

// Execution is a cell with what came of it so far.
type Execution struct {
	Seq               int64            `json:"seq" doc:"The cell is an exec of this number, with all that execs have."`
	Status            string           `json:"status" enum:"pending,running,done,error" doc:"pending until the cells before it have ended."`
	Success           bool             `json:"success" doc:"It ended without an exception."`
	Kernel            string           `json:"kernel"`
	Language          string           `json:"language,omitempty"`
	Stdout            string           `json:"stdout"`
	Stderr            string           `json:"stderr"`
	ExecutionCount    int              `json:"execution_count" doc:"The kernel's number of the cell; 0 when it never ran."`
	Result            MIMEBundle       `json:"result" nullable:"true" doc:"The value of the last expression in MIME types; null: none."`
	Outputs           []DisplayOutput  `json:"outputs" nullable:"false" doc:"What the cell showed, in order."`
	Error             *CodeError       `json:"error" doc:"The exception that ended it, or what else did; null: none."`
	Reason            string           `json:"reason,omitempty" enum:"exited,timeout,oom,killed,disk_full,sandbox_destroyed,sandbox_stopped,container_died,lost,not_started,kernel_died" doc:"Why it ended; exited with an exception too."`
	Message           string           `json:"message,omitempty" doc:"More about the end, for people."`
	KernelRestarted   string           `json:"kernel_restarted,omitempty" doc:"Why what earlier cells defined is gone."`
	RestoreIncomplete string           `json:"restore_incomplete,omitempty" doc:"Given when the sandbox was woken for this and its memory was lost: what is gone, and what is not. The header Cubby-Restore-Incomplete of the answer says the same."`
	Truncated         map[string]int64 `json:"truncated,omitempty" doc:"The whole length in characters of fields that are cut; the whole output is at …/execs/{seq}/output."`
	OutputPruned      bool             `json:"output_pruned,omitempty" doc:"The output was removed to make room for later ones, and is missing because of that."`
	DurationMS        int64            `json:"duration_ms"`
	CreatedAt         time.Time        `json:"created_at"`
	StartedAt         *time.Time       `json:"started_at,omitempty"`
	FinishedAt        *time.Time       `json:"finished_at,omitempty"`
}

// MIMEBundle is one value by MIME type: a string of text or base64, or any
// JSON for types that end in json.
type MIMEBundle map[string]any

// DisplayOutput is a value that a cell showed.
type DisplayOutput struct {
	Data     MIMEBundle `json:"data" nullable:"false"`
	Metadata any        `json:"metadata,omitempty"`
	ID       string     `json:"display_id,omitempty"`
}

// CodeError is an exception in a cell.
type CodeError struct {
	Type      string `json:"type" example:"ZeroDivisionError"`
	Message   string `json:"message"`
	Traceback string `json:"traceback"`
}

func executionJSON(e cell.Execution, now time.Time) Execution {
	x := execJSON(e.Exec, now)
	out := Execution{
		Seq: x.Seq, Status: x.Status, Success: e.Success, Kernel: x.Kernel, Language: x.Language, Stdout: e.Stdout, Stderr: e.Stderr,
		ExecutionCount: e.Count, Result: bundleJSON(e.Result), Outputs: make([]DisplayOutput, len(e.Outputs)), Reason: x.Reason, Message: x.Message,
		KernelRestarted: e.KernelRestarted, RestoreIncomplete: x.RestoreIncomplete, Truncated: e.Truncated, OutputPruned: e.Pruned,
		DurationMS: x.DurationMS, CreatedAt: x.CreatedAt, StartedAt: x.StartedAt, FinishedAt: x.FinishedAt,
	}
	for i, o := range e.Outputs {
		out.Outputs[i] = DisplayOutput{Data: bundleJSON(o.Data), Metadata: front.RawJSON(o.Metadata), ID: o.ID}
	}
	if e.Error != nil {
		out.Error = &CodeError{Type: e.Error.Type, Message: e.Error.Message, Traceback: e.Error.Traceback}
	}
	return out
}

// bundleJSON is nil for no value.
func bundleJSON(b kernel.Bundle) MIMEBundle {
	if b == nil {
		return nil
	}
	out := make(MIMEBundle, len(b))
	for mime, value := range b {
		out[mime] = value
	}
	return out
}

// KernelInput makes a kernel.
type KernelInput struct {
	Name     string            `json:"name,omitempty" maxLength:"63" doc:"Unique in the sandbox; default the language's."`
	Language string            `json:"language,omitempty" example:"python" doc:"python, node, r, bash, or a kernelspec of the image. Default: the sandbox's runtime, python."`
	Cwd      string            `json:"cwd,omitempty" doc:"Default /workspace."`
	Env      map[string]string `json:"env,omitempty" doc:"On top of the sandbox's."`
	User     string            `json:"user,omitempty" doc:"Default: the sandbox's."`
}

// Kernel is a long-lived interpreter in a running sandbox.
type Kernel struct {
	Name           string     `json:"name"`
	Language       string     `json:"language"`
	Spec           string     `json:"spec" doc:"The kernelspec's name; node is cubby's own."`
	DisplayName    string     `json:"display_name"`
	Status         string     `json:"status" enum:"starting,idle,busy,dead" doc:"The next cell starts a dead one anew."`
	Reason         string     `json:"reason,omitempty" doc:"Why it is dead."`
	ExecutionCount int64      `json:"execution_count" doc:"Cells that ran in the present process."`
	PID            int64      `json:"pid" doc:"Inside the sandbox; 0: no process."`
	Restarts       int64      `json:"restarts"`
	Waiting        int64      `json:"waiting" doc:"Cells behind the running one."`
	CreatedAt      time.Time  `json:"created_at"`
	StartedAt      *time.Time `json:"started_at,omitempty" doc:"Of its present process."`
}

// KernelList is the kernels of a sandbox, and those that its image brings.
type KernelList struct {
	Kernels   []Kernel     `json:"kernels" nullable:"false"`
	Available []KernelKind `json:"available" nullable:"false"`
}

// KernelKind is a kernel that an image brings.
type KernelKind struct {
	Spec        string `json:"spec"`
	Language    string `json:"language"`
	DisplayName string `json:"display_name"`
}

func kernelJSON(k sandbox.Kernel) Kernel {
	return Kernel{
		Name: k.Name, Language: k.Language, Spec: k.Spec, DisplayName: k.DisplayName, Status: string(k.Status), Reason: k.Reason,
		ExecutionCount: k.Count, PID: k.PID, Restarts: k.Restarts, Waiting: k.Waiting,
		CreatedAt: k.CreatedAt.UTC(), StartedAt: timeOrNil(k.StartedAt),
	}
}
