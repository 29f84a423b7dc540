package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cubbyhq/cubby/client/internal/texts"
)

// CodeRequest is one cell: code that a kernel of the sandbox runs. What a cell
// defines is there for the next one.
type CodeRequest struct {
	Code string
	// Kernel names one, which is made when there is none; default the one of
	// the language. Language is "python", "node", "r", "bash" or a kernelspec
	// of the image; default the kernel's, the sandbox's runtime, or python.
	Kernel   string
	Language string
	// Timeout interrupts the cell, and the kernel keeps its state; zero is the
	// sandbox's default, [NoTimeout] is none.
	Timeout time.Duration
	// Stdin lets the cell ask: see [CodeOutput.Input]. Otherwise asking is an
	// error in it.
	Stdin bool
	Cwd   string            // of a kernel that is made for the cell
	Env   map[string]string // of a kernel that is made for the cell
	// Stdout and Stderr, where [Client.RunCode] is given them, hear what the
	// cell prints while it runs. A write that fails ends the call.
	Stdout, Stderr io.Writer
	// Shown, where [Client.RunCode] is given it, is called with everything
	// that the cell shows beside text. An error of it ends the call.
	Shown func(CodeOutput) error
	// KillOnCancel interrupts the cell when the context of [Client.RunCode]
	// ends before it, or the call fails by one of the above. Without it the
	// cell goes on.
	KillOnCancel bool
}

func (r CodeRequest) wire() map[string]any {
	m := map[string]any{"code": r.Code}
	for name, value := range map[string]string{"kernel": r.Kernel, "language": r.Language, "cwd": r.Cwd} {
		if value != "" {
			m[name] = value
		}
	}
	if len(r.Env) > 0 {
		m["env"] = r.Env
	}
	if r.Stdin {
		m["stdin"] = true
	}
	switch {
	case r.Timeout < 0:
		m["timeout_seconds"] = 0
	case r.Timeout > 0:
		m["timeout_seconds"] = r.Timeout.Seconds()
	}
	return m
}

// Execution is a cell with what came of it so far. It is an exec too: Seq is
// its number, and its [Process] streams, waits and cancels.
type Execution struct {
	Seq    int64      `json:"seq"`
	Status ExecStatus `json:"status"`
	// Success says that the cell ended without an exception.
	Success  bool   `json:"success"`
	Kernel   string `json:"kernel"`
	Language string `json:"language,omitempty"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	// ExecutionCount is the kernel's number of the cell; 0 when it never ran.
	ExecutionCount int `json:"execution_count"`
	// Result is the value of the last expression; nil: none.
	Result Bundle `json:"result"`
	// Outputs is what the cell showed, images for example, in order.
	Outputs []Display `json:"outputs"`
	// Error is the exception that ended the cell, or says what else did; nil:
	// none.
	Error *CodeError `json:"error"`
	// Reason says honestly why it ended: "exited", also with an exception,
	// "timeout", "killed" (interrupted), "kernel_died", "oom", …
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"` // for people
	// KernelRestarted says why what earlier cells defined is gone; "": it is
	// not.
	KernelRestarted   string `json:"kernel_restarted,omitempty"`
	RestoreIncomplete string `json:"restore_incomplete,omitempty"` // what is gone, if the memory of the sandbox that it woke was lost
	// Truncated has the whole length in characters of what is cut here; the
	// whole is at [Process.Stream].
	Truncated map[string]int64 `json:"truncated,omitempty"`
	// OutputPruned says that the output was removed to make room for later
	// ones, and is missing because of that.
	OutputPruned bool `json:"output_pruned,omitempty"`
	// DurationMS is the running time in milliseconds.
	DurationMS float64    `json:"duration_ms,omitempty"`
	CreatedAt  time.Time  `json:"created_at"`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
}

// Finished reports whether nothing will change any more.
func (e Execution) Finished() bool { return e.Status == ExecDone || e.Status == ExecError }

// Text is the value of the last expression as plain text; "" when there is
// none.
func (e Execution) Text() string { return e.Result.Text() }

// PNG is the first image that the cell showed or resulted in; nil: none.
func (e Execution) PNG() []byte {
	for _, d := range e.Outputs {
		if image := d.Data.PNG(); image != nil {
			return image
		}
	}
	return e.Result.PNG()
}

// Err is nil when the cell ended well, and otherwise a [*CellError].
func (e Execution) Err() error {
	if e.Success {
		return nil
	}
	return &CellError{Execution: e}
}

// String is short, for logs: the number, and where it stands or how it ended.
func (e Execution) String() string {
	what := string(e.Status)
	if e.Finished() && !e.Success {
		what = (&CellError{Execution: e}).Error()
	}
	return fmt.Sprintf("cell %d: %s", e.Seq, texts.Line(what))
}

// CellError is a cell that did not end well, or has not ended. Where the code
// raised an exception it unwraps to a [*CodeError].
type CellError struct{ Execution Execution }

func (e *CellError) Error() string {
	x := e.Execution
	switch {
	case !x.Finished():
		return fmt.Sprintf("cell %d has not ended", x.Seq)
	case x.Error != nil:
		return x.Error.Error()
	case x.Message != "":
		return x.Message
	}
	return "the cell was ended: " + x.Reason
}

func (e *CellError) Unwrap() error {
	if e.Execution.Error == nil {
		return nil
	}
	return e.Execution.Error
}

// RunCode runs a cell and returns when it has ended, with its output. A cell
// that raises is not an error of this call: see [Execution.Err]. When ctx ends
// the cell goes on, unless KillOnCancel is set; [Client.StartCode] gives more
// control.
func (c *Client) RunCode(ctx context.Context, id string, r CodeRequest) (Execution, error) {
	heard := r.Stdout != nil || r.Stderr != nil || r.Shown != nil
	if heard || r.KillOnCancel {
		start := func(ctx context.Context) (*Process, error) { return c.StartCode(ctx, id, r) }
		return attended(ctx, c, r.KillOnCancel, start, func(p *Process) (Execution, error) {
			if heard {
				return p.hearCode(ctx, r)
			}
			return c.waitCode(ctx, id, p.Seq)
		})
	}
	body := r.wire()
	body["wait"] = true
	body["wait_seconds"] = int(waitSlice.Seconds())
	var e Execution
	if err := c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "code"), json: body}, &e); err != nil {
		return e, err
	}
	if e.Finished() {
		return e, nil
	}
	return c.waitCode(ctx, id, e.Seq)
}

// hearCode passes on what a cell prints and shows, to its end.
func (p *Process) hearCode(ctx context.Context, r CodeRequest) (Execution, error) {
	for out, err := range p.StreamCode(ctx, 0) {
		switch {
		case err != nil:
			return Execution{}, err
		case out.Done != nil:
			return *out.Done, nil
		case out.Stream == "stdout" && r.Stdout != nil:
			_, err = io.WriteString(r.Stdout, out.Text)
		case out.Stream == "stderr" && r.Stderr != nil:
			_, err = io.WriteString(r.Stderr, out.Text)
		case out.Stream == "" && r.Shown != nil:
			err = r.Shown(out)
		}
		if err != nil {
			return Execution{}, err
		}
	}
	return p.c.waitCode(ctx, p.Box, p.Seq)
}

// StartCode starts a cell and returns at once.
func (c *Client) StartCode(ctx context.Context, id string, r CodeRequest) (*Process, error) {
	body := r.wire()
	body["wait"] = false
	var e Execution
	if err := c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "code"), json: body}, &e); err != nil {
		return nil, err
	}
	return c.Process(id, e.Seq), nil
}

// Code returns cell seq as it stands now.
func (c *Client) Code(ctx context.Context, id string, seq int64) (Execution, error) {
	return c.code(ctx, id, seq, 0)
}

func (c *Client) code(ctx context.Context, id string, seq int64, wait time.Duration) (Execution, error) {
	q := url.Values{}
	if wait > 0 {
		q.Set("wait_seconds", strconv.Itoa(int(wait.Seconds())))
	}
	var e Execution
	path := sandboxPath(id, "code", strconv.FormatInt(seq, 10))
	return e, c.do(ctx, call{method: http.MethodGet, path: path, query: q}, &e)
}

// waitCode returns when the cell has ended, as [Process.Wait] does.
func (c *Client) waitCode(ctx context.Context, id string, seq int64) (Execution, error) {
	return patient(ctx, c.newBackoff(), func() (Execution, error) { return c.code(ctx, id, seq, waitSlice) })
}

// CodeOutput is one thing that a cell shows while it runs. Exactly one of
// Text, Display, Result, Error, Clear, Input, Kernel and Done is set.
type CodeOutput struct {
	Stream string // of Text: "stdout" or "stderr"
	Text   string

	Display *Display
	// Update: Display replaces the earlier one with its ID.
	Update bool
	Result Bundle
	Error  *CodeError
	// Clear asks to remove what was shown so far, with Wait only when the
	// next output comes.
	Clear *ClearOutput
	// Input is a question; the cell waits for a line at [Process.Stdin].
	Input *InputRequest
	// Kernel tells that the kernel began anew before the cell, or ended.
	Kernel *KernelNotice
	// Done is the whole cell, as [Client.Code] returns it; only at the end.
	Done *Execution

	// Next is the offset to go on from after this output.
	Next int64
}

// String is short, for logs: what it is, and how much.
func (o CodeOutput) String() string {
	switch {
	case o.Display != nil:
		return fmt.Sprintf("display: %v", o.Display.Data)
	case o.Result != nil:
		return fmt.Sprintf("result: %v", o.Result)
	case o.Error != nil:
		return "error: " + texts.Line(o.Error.Error())
	case o.Clear != nil:
		return "clear"
	case o.Input != nil:
		return "input: " + texts.Line(o.Input.Prompt)
	case o.Kernel != nil:
		return "kernel: " + texts.Line(o.Kernel.Reason)
	case o.Done != nil:
		return o.Done.String()
	}
	return fmt.Sprintf("%s: %d bytes", o.Stream, len(o.Text))
}

// StreamCode runs a cell and follows what it shows. The last item has Done
// set. Broken connections are bridged as by [Process.Stream]. Leaving the loop
// does not touch the cell.
func (c *Client) StreamCode(ctx context.Context, id string, r CodeRequest) iter.Seq2[CodeOutput, error] {
	return func(yield func(CodeOutput, error) bool) {
		p, err := c.StartCode(ctx, id, r)
		if err != nil {
			yield(CodeOutput{}, err)
			return
		}
		p.StreamCode(ctx, 0)(yield)
	}
}

// StreamCode follows what a cell shows, from an offset, 0 for the beginning,
// as [Process.Stream] does.
func (p *Process) StreamCode(ctx context.Context, after int64) iter.Seq2[CodeOutput, error] {
	return func(yield func(CodeOutput, error) bool) {
		for out, err := range p.Stream(ctx, after) {
			if err != nil {
				yield(CodeOutput{}, err)
				return
			}
			o := CodeOutput{Stream: out.Stream, Next: out.Next}
			switch {
			case out.Exit != nil:
				e, err := p.c.waitCode(ctx, p.Box, p.Seq)
				if err != nil {
					yield(CodeOutput{}, err)
					return
				}
				o.Done = &e
			case out.Stream == Rich:
				o.Stream = ""
				if !o.rich(out.Data) {
					continue // of a newer daemon
				}
			default:
				o.Text = string(out.Data)
			}
			if !yield(o, nil) {
				return
			}
		}
	}
}

// rich reads a line of a cell's rich output; false when it is none that this
// version knows.
func (o *CodeOutput) rich(line []byte) bool {
	var w struct {
		Display *struct {
			Display
			Update bool `json:"update"`
		} `json:"display"`
		Result *struct {
			Data Bundle `json:"data"`
		} `json:"result"`
		Error *struct {
			Name      string   `json:"ename"`
			Value     string   `json:"evalue"`
			Traceback []string `json:"traceback"`
		} `json:"error"`
		Clear  *ClearOutput  `json:"clear"`
		Input  *InputRequest `json:"input"`
		Kernel *KernelNotice `json:"kernel"`
	}
	if json.Unmarshal(line, &w) != nil {
		return false
	}
	switch {
	case w.Display != nil:
		o.Display, o.Update = &w.Display.Display, w.Display.Update
	case w.Result != nil:
		o.Result = w.Result.Data
	case w.Error != nil:
		o.Error = &CodeError{Type: w.Error.Name, Message: w.Error.Value}
		for i, part := range w.Error.Traceback {
			if i > 0 {
				o.Error.Traceback += "\n"
			}
			o.Error.Traceback += part
		}
	}
	o.Clear, o.Input, o.Kernel = w.Clear, w.Input, w.Kernel
	return o.Display != nil || o.Result != nil || o.Error != nil || o.Clear != nil || o.Input != nil || o.Kernel != nil
}
