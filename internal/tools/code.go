package tools

import (
	"cmp"
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/cubbyhq/cubby/internal/core/cell"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// How long a tool may take, in seconds. Clients give up after a minute when
// nobody told them more.
const (
	defaultTimeout = 30
	longestTimeout = 300
)

// LongestTimeout is how long code and commands may run that are waited for.
const LongestTimeout = longestTimeout * time.Second

// Executed is what code did. Texts and displays are all that core gives.
type Executed struct {
	Success        bool             `json:"success" jsonschema:"whether the code ran to its end"`
	Stdout         string           `json:"stdout"`
	Stderr         string           `json:"stderr"`
	Result         *Value           `json:"result" jsonschema:"the value of the last expression"`
	Error          *CodeError       `json:"error" jsonschema:"what the code raised"`
	DisplayOutputs []Display        `json:"display_outputs" jsonschema:"plots, tables and what else was shown"`
	Restarted      string           `json:"kernel_restarted,omitempty" jsonschema:"why the interpreter began anew and has forgotten what was before"`
	Again          string           `json:"session_restarted,omitempty" jsonschema:"why the session was started again, and what it has lost"`
	Truncated      map[string]int64 `json:"truncated,omitempty" jsonschema:"how many characters the texts had that were cut"`
	DurationMS     int64            `json:"duration_ms"`
}

// Value is the value of code's last expression.
type Value struct {
	Text string `json:"text/plain"`
}

// CodeError is what code raised.
type CodeError struct {
	Type      string `json:"type"`
	Message   string `json:"message"`
	Traceback string `json:"traceback"`
}

func (s *Set) executeCodeTool() Tool {
	return Tool{
		Name: "execute_code", Title: "Run code",
		Description: "Runs code in the session's interpreter and returns what it prints, the value of its last expression and what it shows. " +
			"Variables, functions and imports stay for later calls. When the time is over the code is interrupted and the variables stay.",
		Input: object([]string{"session_id", "code"}, map[string]*jsonschema.Schema{
			"session_id": sessionID(),
			"code":       filled("Code in the session's language."),
			"timeout":    number(defaultTimeout, 1, longestTimeout, "Seconds that the code may run."),
		}),
		Output: shape[Executed](), Destructive: true, Open: true, run: executeCode,
	}
}

func executeCode(ctx context.Context, c *call) (Answer, error) {
	code, limit, err := c.toRun(ctx, "code")
	if err != nil {
		return Answer{}, err
	}
	seq, err := c.runToEnd(ctx, func() (sandbox.Exec, error) {
		return c.core.Code().Start(ctx, c.id, cell.Request{Code: code, Language: c.language, Timeout: &limit})
	})
	if err != nil {
		return Answer{}, err
	}
	ctx = c.reading(ctx)
	read := c.core.Code().Execution
	if c.set.bounds.CodeEnds {
		read = c.core.Code().Ends
	}
	e, err := read(ctx, c.id, seq)
	if err != nil {
		return Answer{}, err
	}
	if err := c.ended(ctx, e.Exec); err != nil {
		return Answer{}, err
	}
	out := Executed{
		Success: e.Success, Stdout: e.Stdout + e.StdoutEnd, Stderr: e.Stderr + e.StderrEnd, Restarted: e.KernelRestarted, Again: c.anew(), Truncated: e.Truncated,
		DurationMS: e.Exec.Took().Milliseconds(),
	}
	if s, ok := e.Result["text/plain"]; ok {
		out.Result = &Value{textOf(s)}
	}
	if e.Error != nil {
		out.Error = &CodeError{e.Error.Type, e.Error.Message, e.Error.Traceback}
	}
	out.DisplayOutputs = DisplaysOf(e)
	a := Answer{Value: out, Exec: seq, Failed: c.givenUp}
	if c.set.bounds.CodeEnds {
		a.Stdout, a.Stderr = lacking(e, "stdout", out.Stdout, e.StdoutEnd), lacking(e, "stderr", out.Stderr, e.StderrEnd)
	}
	return a, nil
}

// lacking is what is missing of a text that code printed.
func lacking(e cell.Execution, name, text, end string) Printed {
	total := e.Truncated[name]
	return Printed{Cut: max(0, total-int64(utf8.RuneCountInString(text))), End: end}
}

// ended is an error when code did not run or its session did not outlive it.
// How it ended otherwise is in its result.
func (c *call) ended(ctx context.Context, x sandbox.Exec) error {
	if x.Exit == nil {
		return errs.E(errs.Internal, "a cell that has ended has no end")
	}
	switch x.Exit.Reason {
	case sandbox.EndNotRun:
		return errs.E(errs.Unsupported, "%s", cmp.Or(x.Exit.Message, "the code could not be run"))
	case sandbox.EndOOM, sandbox.EndDied, sandbox.EndStopped, sandbox.EndDestroyed, sandbox.EndLost:
		return c.lost(ctx, x)
	}
	return nil
}

// lost is the error of a command that ended with its session, or that nobody
// knows the end of.
func (c *call) lost(ctx context.Context, x sandbox.Exec) error {
	id := c.id
	b, err := c.core.Sandboxes().Get(ctx, id)
	dead := err == nil && b.Cause.Died()
	switch x.Exit.Reason {
	case sandbox.EndOOM:
		e := &died{id, "OOM-killed — the code exhausted the container memory limit", hintOOM}
		if dead {
			e.hint = hintDied
		}
		return e
	case sandbox.EndDied, sandbox.EndStopped, sandbox.EndDestroyed:
		reason := deathOf(b)
		if !dead {
			reason = cmp.Or(x.Exit.Message, strings.ReplaceAll(string(x.Exit.Reason), "_", " "))
		}
		return &died{id, reason, hintDied}
	}
	return errs.E(errs.Unavailable, "%s", cmp.Or(x.Exit.Message, "the command's end is not known"))
}
