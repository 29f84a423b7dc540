package cell

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/excerpt"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// storedResult is what is stored of how a cell ended; its output has the rest.
type storedResult struct {
	Kernel   string       `json:"kernel"`
	Language string       `json:"language,omitempty"`
	Count    int          `json:"execution_count"`
	Success  bool         `json:"success"`
	Error    *storedError `json:"error"`
	// KernelRestarted says why what earlier cells had made was gone, and
	// KernelDied why what this one made is.
	KernelRestarted string `json:"kernel_restarted,omitempty"`
	KernelDied      string `json:"kernel_died,omitempty"`
}

type storedError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// maxFault bounds what is stored of an error's message, in characters.
const maxFault = 2000

// Result makes the result of a finished cell that is stored with it.
func (r *Reader) Result(ctx context.Context, x sandbox.Exec) (json.RawMessage, error) {
	o := output{brief: true}
	err := r.read(ctx, x, &o)
	if err != nil && !errors.Is(err, errs.NotFound) {
		return nil, err
	}
	stored := storedResult{
		Kernel: x.Spec.Cell.Kernel, Language: x.Spec.Cell.Language, Count: o.count, Success: succeeded(x),
		KernelRestarted: excerpt.First(o.restarted, maxFault), KernelDied: excerpt.First(o.died, maxFault),
	}
	if e := errorOf(x, &o, Caps{}, nil); e != nil {
		stored.Error = &storedError{Type: e.Type, Message: excerpt.First(e.Message, maxFault)}
	}
	return json.Marshal(stored)
}

func succeeded(x sandbox.Exec) bool {
	return x.Exit != nil && x.Exit.Reason == sandbox.EndExited && x.Exit.Code != nil && *x.Exit.Code == 0
}

// errorOf is the error of a cell that did not succeed: what it raised, or
// why it ended before it could say anything. Nil while it runs.
func errorOf(x sandbox.Exec, o *output, caps Caps, truncated map[string]int64) *Error {
	if x.Exit == nil && o.fault == nil || succeeded(x) {
		return nil
	}
	e := new(Error)
	if o.fault != nil {
		*e = *o.fault
	}
	if x.Exit != nil {
		switch reason := x.Exit.Reason; {
		case reason == sandbox.EndTimeout:
			// The kernel itself knows of an interrupt only.
			e.Type, e.Message = "TimeoutError", "Execution timed out"
			if limit := x.Spec.Timeout; limit != nil {
				e.Message += fmt.Sprintf(" after %gs", limit.Seconds())
			}
			if o.died != "" {
				e.Message += "; " + o.died
			}
		case reason == sandbox.EndExited && o.fault == nil:
			// The record of it was not kept, for much was shown before.
			e.Type, e.Message = raised(*x.Exit)
			e.Message = cmp.Or(e.Message, "the code failed")
		case reason != sandbox.EndExited && (reason != sandbox.EndKilled || o.fault == nil):
			e.Type = endTypes[reason]
			e.Message = cmp.Or(x.Exit.Message, o.died, "the code did not end by itself: "+string(reason))
		}
	}
	e.Type = cmp.Or(e.Type, "Error")
	e.Message = capText(e.Message, caps.Traceback, "error.message", truncated)
	e.Traceback = capText(e.Traceback, caps.Traceback, "error.traceback", truncated)
	return e
}

// raised returns the name and the text of the exception that an exit tells. What
// agents without the field told, and was stored so, has the name in front of the
// text alone.
func raised(x sandbox.Exit) (name, text string) {
	if x.Exception == "" {
		name, text, _ = strings.Cut(x.Message, ": ")
		return name, text
	}
	text, _ = strings.CutPrefix(x.Message, x.Exception)
	return x.Exception, strings.TrimPrefix(text, ": ")
}

// maxErrorType bounds the name of an exception, in characters.
const maxErrorType = 200

// endTypes name the errors of cells that something else ended.
var endTypes = map[sandbox.EndReason]string{
	sandbox.EndOOM:       "OutOfMemoryError",
	sandbox.EndKernel:    "KernelDiedError",
	sandbox.EndKilled:    "InterruptedError",
	sandbox.EndNotRun:    "NotStartedError",
	sandbox.EndDied:      "ContainerDiedError",
	sandbox.EndStopped:   "SandboxStoppedError",
	sandbox.EndDestroyed: "SandboxDestroyedError",
	sandbox.EndDiskFull:  "DiskFullError",
	sandbox.EndLost:      "LostError",
}
