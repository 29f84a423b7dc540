package core

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// CodeRequest is a cell of code to run in a kernel.
type CodeRequest struct {
	// Kernel names the kernel; "" is the one that has the language's name.
	Kernel string
	// Language is that of the kernel that is made when there is none of this
	// name: a language or a kernelspec of the image. "" is the language of the
	// kernel where that is known, else the sandbox's runtime, else Python.
	Language string
	Code     string
	// Timeout interrupts the cell, which leaves the kernel's state as it is; nil
	// is the sandbox's time limit for commands, 0 none. It does not count while
	// the cell waits for those before it.
	Timeout *time.Duration
	Stdin   bool // the cell may ask for input: see [Service.WriteStdin]
	// Cwd and Env are for a kernel that is made for this cell.
	Cwd string
	Env map[string]string
}

// KindCode is the kind of execs that are cells.
const KindCode = "code.run"

// StartCode starts a cell and returns at once. It is an exec: numbered, kept,
// followed, canceled and waited for as a command is. The cells of one kernel
// run in the order of their numbers, and one that waits is pending. WrongState
// when the sandbox does not run, NotFound when there is no kernel of this name
// and nothing says of which language to make one.
func (s *Service) StartCode(ctx context.Context, id string, r CodeRequest) (sandbox.Exec, error) {
	leave, err := s.gate.Enter(ctx)
	if err != nil {
		return sandbox.Exec{}, err
	}
	defer leave()
	b, run, err := s.findRunning(ctx, id)
	if err != nil {
		return sandbox.Exec{}, err
	}
	spec, err := run.cell(ctx, b.Spec, r)
	if err != nil {
		return sandbox.Exec{}, err
	}
	return run.enqueue(ctx, b, spec)
}

// RunCode is [Service.StartCode], [Service.WaitExec] and [Service.Execution]
// in one. The execution is unfinished when wait is over first, and names the
// exec beside the error when ctx ends first; a negative wait is for ever.
func (s *Service) RunCode(ctx context.Context, id string, r CodeRequest, wait time.Duration) (Execution, error) {
	x, err := s.StartCode(ctx, id, r)
	if err != nil {
		return Execution{}, err
	}
	ended, err := s.waitQueued(ctx, x.Box, x.Seq, wait)
	if err != nil {
		return Execution{Exec: x}, err
	}
	return s.execution(ctx, ended)
}

// Execution returns a cell with what it has shown so far, also that of a
// destroyed sandbox. Invalid when the exec is not a cell.
func (s *Service) Execution(ctx context.Context, id string, seq int64) (Execution, error) {
	x, err := s.ExecByID(ctx, id, seq)
	if err != nil {
		return Execution{}, err
	}
	if x.Spec.Cell == nil {
		return Execution{}, errs.E(errs.Invalid, "%d is a command and not code", seq).Hint("read it as a command: its output is text")
	}
	return s.execution(ctx, x)
}

// cell makes the exec of a request.
func (r *run) cell(ctx context.Context, box sandbox.Spec, req CodeRequest) (sandbox.ExecSpec, error) {
	c := sandbox.Cell{Kernel: req.Kernel, Language: canonicalLanguage(req.Language), Code: req.Code}
	switch {
	case c.Kernel == "":
		c.Language = cmp.Or(c.Language, defaultLanguage(box))
		c.Kernel = c.Language
	case c.Language == "" && namesLanguage(c.Kernel):
		c.Language = c.Kernel
	}
	spec := sandbox.ExecSpec{
		Kind: KindCode, Cell: &c, Cwd: req.Cwd, Env: req.Env, Timeout: req.Timeout, Stdin: req.Stdin,
	}
	if err := spec.Validate(); err != nil {
		return spec, err
	}
	if c.Language == "" {
		var err error
		if c.Language, err = r.languageOf(ctx, c.Kernel); err != nil {
			return spec, err
		}
	}
	detail, err := json.Marshal(codeDetail{Kernel: c.Kernel, Language: c.Language})
	spec.Detail = detail
	return spec, err
}

// languageOf returns the language of a kernel that somebody has made.
func (r *run) languageOf(ctx context.Context, kernel string) (string, error) {
	r.mu.Lock()
	language := r.languages[kernel]
	r.mu.Unlock()
	if language != "" {
		return language, nil
	}
	k, err := r.kernel(ctx, kernel)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.languages) >= maxLanguages {
		clear(r.languages)
	}
	r.languages[kernel] = k.Language
	return k.Language, nil
}

// maxLanguages bounds the kernels whose language is remembered.
const maxLanguages = 256

// codeDetail is what histories show of a cell. As for commands that is not the
// code.
type codeDetail struct {
	Kernel   string `json:"kernel"`
	Language string `json:"language,omitempty"`
}

func defaultLanguage(box sandbox.Spec) string {
	return cmp.Or(box.Runtime, sandbox.RuntimePython)
}

// languageBash is no runtime: no package manager goes with it.
const languageBash = "bash"

// canonicalLanguage is the name that a language's default kernel has. What it
// does not know is a kernelspec's name.
func canonicalLanguage(name string) string {
	switch strings.ToLower(name) {
	case "python", "python3", "py", "ipython":
		return sandbox.RuntimePython
	case "node", "nodejs", "javascript", "js":
		return sandbox.RuntimeNode
	case "r", "ir":
		return sandbox.RuntimeR
	case "bash", "sh", "shell":
		return languageBash
	}
	return name
}

// namesLanguage reports whether a kernel's name alone says what to make.
func namesLanguage(kernel string) bool {
	switch kernel {
	case sandbox.RuntimePython, sandbox.RuntimeNode, sandbox.RuntimeR, languageBash:
		return true
	}
	return false
}

// codeResult is what is stored of how a cell ended; its output has the rest.
type codeResult struct {
	Kernel   string     `json:"kernel"`
	Language string     `json:"language,omitempty"`
	Count    int        `json:"execution_count"`
	Success  bool       `json:"success"`
	Error    *codeFault `json:"error"`
	// KernelRestarted says why what earlier cells had made was gone, and
	// KernelDied why what this one made is.
	KernelRestarted string `json:"kernel_restarted,omitempty"`
	KernelDied      string `json:"kernel_died,omitempty"`
}

type codeFault struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// maxFault bounds what is stored of an error's message, in characters.
const maxFault = 2000

// endOfCode makes the stored result of a cell.
func endOfCode(s *Service, ctx context.Context, x sandbox.Exec) (json.RawMessage, error) {
	o := cellOutput{brief: true}
	err := s.readCell(ctx, x, &o)
	if err != nil && !errors.Is(err, errs.NotFound) {
		return nil, err
	}
	r := codeResult{
		Kernel: x.Spec.Cell.Kernel, Language: x.Spec.Cell.Language, Count: o.count, Success: succeeded(x),
		KernelRestarted: firstChars(o.restarted, maxFault), KernelDied: firstChars(o.died, maxFault),
	}
	if e := codeError(x, &o, CodeCaps{}, nil); e != nil {
		r.Error = &codeFault{Type: e.Type, Message: firstChars(e.Message, maxFault)}
	}
	return json.Marshal(r)
}

// readCell gives what the journal has of a cell to o, and charges for it.
func (s *Service) readCell(ctx context.Context, x sandbox.Exec, o *cellOutput) error {
	charged := int64(0)
	for entry, err := range s.cfg.Journals.Read(ctx, x.Box, x.Seq, 0, false) {
		if err != nil {
			return err
		}
		if entry.Exit == nil {
			if charged, err = s.chargeCell(ctx, o, entry.Output, charged); err != nil {
				return err
			}
			o.add(entry.Output)
		}
	}
	return nil
}

func succeeded(x sandbox.Exec) bool {
	return x.Exit != nil && x.Exit.Reason == sandbox.EndExited && x.Exit.Code != nil && *x.Exit.Code == 0
}

// codeError is the error of a cell that did not succeed: what it raised, or
// why it ended before it could say anything. Nil while it runs.
func codeError(x sandbox.Exec, o *cellOutput, caps CodeCaps, truncated map[string]int64) *CodeError {
	if x.Exit == nil && o.fault == nil || succeeded(x) {
		return nil
	}
	e := new(CodeError)
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
			name, message, _ := strings.Cut(x.Exit.Message, ": ")
			e.Type, e.Message = name, cmp.Or(message, "the code failed")
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

// queueOf names the queue whose commands run one after another: a session's or
// a kernel's; "" is none. A session's name has no colon.
func queueOf(x sandbox.ExecSpec) string {
	if x.Cell != nil {
		return kernelQueue(x.Cell.Kernel)
	}
	return x.Session
}

func kernelQueue(kernel string) string { return "kernel:" + kernel }

// ofKernel reports whether a queue is a kernel's.
func (q *queue) ofKernel() bool { return strings.HasPrefix(q.name, kernelQueue("")) }
