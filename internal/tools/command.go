package tools

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// TerminalOutput is how a command ended, and what it printed within the bounds.
type TerminalOutput struct {
	ExitCode int    `json:"exit_code" jsonschema:"128 + signal when a signal ended the command, -1 when nobody knows"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	Reason   string `json:"reason,omitempty" jsonschema:"why the command ended, when it did not end by itself: timeout, oom, killed, disk_full"`
	Message  string `json:"message,omitempty" jsonschema:"more about that"`
	Again    string `json:"session_restarted,omitempty" jsonschema:"why the session was started again, and what it has lost"`
}

func (s *Set) executeTerminalTool() Tool {
	return Tool{
		Name: "execute_terminal", Title: "Run a shell command",
		Description: "Runs a shell command in the session's /workspace and waits for its end. Every command is a shell of its own: cd and " +
			"variables do not last. A command that takes too long is killed with everything that it started; use start_command for servers and long work.",
		Input: object([]string{"session_id", "command"}, map[string]*jsonschema.Schema{
			"session_id": sessionID(),
			"command":    filled("What to run, as for sh -c."),
			"timeout":    number(defaultTimeout, 1, longestTimeout, "Seconds that the command may run."),
		}),
		Output: shape[TerminalOutput](), Destructive: true, Open: true, run: executeTerminal,
	}
}

// toRun reads the arguments of a tool that runs something to its end: in which
// session, what, and for how long.
func (c *call) toRun(ctx context.Context, name string) (what string, limit time.Duration, err error) {
	c.forSession()
	what = c.text(name)
	seconds := c.number("timeout", defaultTimeout, 1, longestTimeout)
	return what, time.Duration(seconds) * time.Second, c.ready(ctx)
}

func executeTerminal(ctx context.Context, c *call) (Answer, error) {
	command, limit, err := c.toRun(ctx, "command")
	if err != nil {
		return Answer{}, err
	}
	seq, err := c.runToEnd(ctx, func() (sandbox.Exec, error) {
		return c.core.Execs().Start(ctx, c.id, sandbox.ExecSpec{Shell: command, Timeout: &limit})
	})
	if err != nil {
		return Answer{}, err
	}
	ctx = c.reading(ctx)
	r, err := c.core.Execs().Result(ctx, c.id, seq, live.OutputCaps{Stdout: c.set.bounds.Stdout, Stderr: c.set.bounds.Stderr, Ends: true})
	if err != nil {
		return Answer{}, err
	}
	end := r.Exec.Exit
	if end == nil {
		return Answer{}, errs.E(errs.Internal, "a command that has ended has no end")
	}
	out, a := TerminalOutput{ExitCode: -1, Again: c.anew()}, Answer{Exec: seq}
	out.Stdout, a.Stdout = printed(r.Stdout, r.StdoutEnd, r.StdoutCut)
	out.Stderr, a.Stderr = printed(r.Stderr, r.StderrEnd, r.StderrCut)
	if end.Code != nil {
		out.ExitCode = *end.Code
	}
	switch end.Reason {
	case sandbox.EndExited:
	case sandbox.EndTimeout:
		out.Reason, out.Message = string(end.Reason), fmt.Sprintf("Execution timed out after %ds", int(limit.Seconds()))
	case sandbox.EndNotRun:
		return Answer{}, errs.E(errs.Invalid, "%s", cmp.Or(end.Message, "the command could not be run"))
	case sandbox.EndOOM, sandbox.EndKilled, sandbox.EndDiskFull:
		out.Reason, out.Message = string(end.Reason), end.Message
	default:
		return Answer{}, c.lost(ctx, r.Exec)
	}
	if c.givenUp {
		out.Reason, out.Message = string(end.Reason), "The call was cancelled before the command had ended. stdout and stderr have what it printed until then."
	}
	a.Value, a.Failed = out, c.givenUp
	return a, nil
}

// asUTF8 is what a command printed, as text.
func asUTF8(b []byte) string { return strings.ToValidUTF8(string(b), "\ufffd") }

type startedCommand struct {
	Success   bool   `json:"success"`
	CommandID int64  `json:"command_id" jsonschema:"what get_output and kill_command are given"`
	Status    string `json:"status" jsonschema:"running"`
	Again     string `json:"session_restarted,omitempty" jsonschema:"why the session was started again, and what it has lost"`
}

// longestCommand bounds what start_command's timeout may be, in seconds.
const longestCommand = 7 * 24 * 60 * 60

func (s *Set) startCommandTool() Tool {
	return Tool{
		Name: "start_command", Title: "Start a command in the background",
		Description: "Starts a shell command in the session's /workspace and returns at once, for servers and for work that takes longer than a " +
			"few minutes. get_output reads what it prints, kill_command ends it.",
		Input: object([]string{"session_id", "command"}, map[string]*jsonschema.Schema{
			"session_id": sessionID(),
			"command":    filled("What to run, as for sh -c."),
			"timeout":    number(0, 0, longestCommand, "Seconds after which it is killed; 0 is never."),
		}),
		Output: shape[startedCommand](), Destructive: true, Open: true,
		run: func(ctx context.Context, c *call) (Answer, error) {
			c.forSession()
			command := c.text("command")
			limit := time.Duration(c.number("timeout", 0, 0, longestCommand)) * time.Second
			if err := c.ready(ctx); err != nil {
				return Answer{}, err
			}
			if err := c.running(ctx); err != nil {
				return Answer{}, err
			}
			x, err := c.core.Execs().Start(ctx, c.id, sandbox.ExecSpec{Shell: command, Timeout: &limit})
			if err != nil {
				return Answer{}, err
			}
			again, err := c.restarted(ctx)
			return Answer{Value: startedCommand{true, x.Seq, string(x.Status), again}}, err
		},
	}
}

type commandOutput struct {
	Success    bool   `json:"success"`
	CommandID  int64  `json:"command_id"`
	Status     string `json:"status" jsonschema:"pending, running, done or error"`
	ExitCode   *int   `json:"exit_code" jsonschema:"null while it runs"`
	Reason     string `json:"reason,omitempty" jsonschema:"why it ended"`
	Stdout     string `json:"stdout" jsonschema:"what was printed after the offset"`
	Stderr     string `json:"stderr"`
	NextOffset int64  `json:"next_offset" jsonschema:"the offset to go on from"`
	More       bool   `json:"more" jsonschema:"whether there is more to read already"`
}

// longestWait bounds get_output's wait, in seconds.
const longestWait = 50

func (s *Set) getOutputTool() Tool {
	return Tool{
		Name: "get_output", Title: "Read a command's output",
		Description: "Returns what a command of start_command (or any earlier call) has printed since an offset, and how it ended.",
		Input: object([]string{"session_id", "command_id"}, map[string]*jsonschema.Schema{
			"session_id": sessionID(),
			"command_id": commandID(),
			"offset":     number(0, 0, 1<<53, "next_offset of the call before; 0 is the beginning."),
			"wait":       number(0, 0, longestWait, "Seconds to wait for the end of the command."),
		}),
		Output: shape[commandOutput](), ReadOnly: true, Idempotent: true, run: getOutput,
	}
}

func getOutput(ctx context.Context, c *call) (Answer, error) {
	c.forSession()
	seq := c.commandID()
	offset := c.number("offset", 0, 0, 1<<53)
	wait := time.Duration(c.number("wait", 0, 0, longestWait)) * time.Second
	if err := c.readyIfThere(ctx); err != nil {
		return Answer{}, err
	}
	if _, err := c.session(ctx); err != nil {
		return Answer{}, err
	}
	id := c.id
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.set.life, cancel)()
	if wait > 0 {
		done := c.follow(waiting, seq)
		_, err := c.core.Execs().Wait(waiting, id, seq, wait)
		done(false)
		if err != nil && c.set.life.Err() == nil {
			return Answer{}, err
		}
	}
	x, err := c.core.Execs().Get(ctx, id, seq)
	if err != nil {
		return Answer{}, err
	}
	out := commandOutput{Success: true, CommandID: seq, Status: string(x.Status), NextOffset: offset}
	if x.Exit != nil {
		out.ExitCode, out.Reason = x.Exit.Code, string(x.Exit.Reason)
	}
	var stdout, stderr []byte
	room := c.set.bounds.Output // there is always more to be had
	for entry, err := range c.core.Execs().Output(ctx, id, seq, offset, false) {
		if err != nil {
			return Answer{}, err
		}
		if entry.Exit != nil {
			break
		}
		o := entry.Output
		to := &stdout
		if o.Stream == sandbox.Stderr {
			to = &stderr
		}
		if fits := Head(string(o.Data), room); len(fits) < len(o.Data) {
			o.Data, out.More = []byte(fits), true
			o.Data = o.Data[:len(o.Data)-front.PartialRune(o.Data)]
		}
		room -= Weight(string(o.Data))
		if o.Stream != sandbox.Rich {
			*to = append(*to, o.Data...)
		}
		out.NextOffset = o.Offset + int64(len(o.Data))
		if out.More {
			break
		}
	}
	out.Stdout, out.Stderr = asUTF8(stdout), asUTF8(stderr)
	return Answer{Value: out}, nil
}

// commandID reads the number of an exec.
func (c *call) commandID() int64 {
	if !c.has("command_id") {
		c.add("missing", "command_id", "Field required")
		return 0
	}
	return c.number("command_id", 0, 1, 1<<53)
}

type killedCommand struct {
	Success  bool   `json:"success"`
	Status   string `json:"status"`
	ExitCode *int   `json:"exit_code"`
}

func (s *Set) killCommandTool() Tool {
	return Tool{
		Name: "kill_command", Title: "Kill a command",
		Description: "Ends a command and everything that it started. Ending one that has ended does nothing to it.",
		Input: object([]string{"session_id", "command_id"}, map[string]*jsonschema.Schema{
			"session_id": sessionID(), "command_id": commandID(),
		}),
		Output: shape[killedCommand](), Destructive: true, Idempotent: true,
		run: func(ctx context.Context, c *call) (Answer, error) {
			c.forSession()
			seq := c.commandID()
			if err := c.readyIfThere(ctx); err != nil {
				return Answer{}, err
			}
			if _, err := c.session(ctx); err != nil {
				return Answer{}, err
			}
			x, err := c.core.Execs().Cancel(ctx, c.id, seq)
			out := killedCommand{Success: err == nil, Status: string(x.Status)}
			if x.Exit != nil {
				out.ExitCode = x.Exit.Code
			}
			return Answer{Value: out}, err
		},
	}
}
