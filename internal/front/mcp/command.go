package mcp

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

// How much text of a command an answer has, in bytes.
const (
	maxStdout = 50_000
	maxStderr = 120_000
	// maxText bounds one of them as it is sent.
	maxText = 256 << 10
)

type terminalOutput struct {
	ExitCode int    `json:"exit_code" jsonschema:"128 + signal when a signal ended the command, -1 when nobody knows"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	Reason   string `json:"reason,omitempty" jsonschema:"why the command ended, when it did not end by itself: timeout, oom, killed, disk_full"`
	Message  string `json:"message,omitempty" jsonschema:"more about that"`
	Again    string `json:"session_restarted,omitempty" jsonschema:"why the session was started again, and what it has lost"`
}

func (d *Door) executeTerminalTool() tool {
	return tool{
		name: "execute_terminal", title: "Run a shell command",
		description: "Runs a shell command in the session's /workspace and waits for its end. Every command is a shell of its own: cd and " +
			"variables do not last. A command that takes too long is killed with everything that it started; use start_command for servers and long work.",
		input: object([]string{"session_id", "command"}, map[string]*jsonschema.Schema{
			"session_id": sessionID(),
			"command":    filled("What to run, as for sh -c."),
			"timeout":    number(defaultTimeout, 1, longestTimeout, "Seconds that the command may run."),
		}),
		output: shape[terminalOutput](), destructive: true, open: true, run: executeTerminal,
	}
}

// toRun reads the arguments of a tool that runs something to its end: in which
// session, what, and for how long.
func (c *call) toRun(name string) (id, what string, limit time.Duration, err error) {
	id, what = c.text("session_id"), c.text(name)
	seconds := c.number("timeout", defaultTimeout, 1, longestTimeout)
	return id, what, time.Duration(seconds) * time.Second, c.check()
}

func executeTerminal(ctx context.Context, c *call) (answer, error) {
	id, command, limit, err := c.toRun("command")
	if err != nil {
		return answer{}, err
	}
	seq, err := c.runToEnd(ctx, id, func() (sandbox.Exec, error) {
		return c.core.Execs().Start(ctx, id, sandbox.ExecSpec{Shell: command, Timeout: &limit})
	})
	if err != nil {
		return answer{}, err
	}
	r, err := c.core.Execs().Result(ctx, id, seq, live.OutputCaps{Stdout: maxStdout, Stderr: maxStderr})
	if err != nil {
		return answer{}, err
	}
	end := r.Exec.Exit
	if end == nil {
		return answer{}, errs.E(errs.Internal, "a command that has ended has no end")
	}
	out := terminalOutput{ExitCode: -1, Again: c.again, Stdout: clipped(r.Stdout, r.StdoutCut), Stderr: clipped(r.Stderr, r.StderrCut)}
	if end.Code != nil {
		out.ExitCode = *end.Code
	}
	switch end.Reason {
	case sandbox.EndExited:
	case sandbox.EndTimeout:
		out.Reason, out.Message = string(end.Reason), fmt.Sprintf("Execution timed out after %ds", int(limit.Seconds()))
	case sandbox.EndNotRun:
		return answer{}, errs.E(errs.Invalid, "%s", cmp.Or(end.Message, "the command could not be run"))
	case sandbox.EndOOM, sandbox.EndKilled, sandbox.EndDiskFull:
		out.Reason, out.Message = string(end.Reason), end.Message
	default:
		return answer{}, c.lost(ctx, id, r.Exec)
	}
	a := answer{}
	var cut bool
	if out.Stdout, cut = bounded(out.Stdout, maxText); cut || r.StdoutCut > 0 {
		a.extra = append(a.extra, fullText(id, seq, "stdout"))
	}
	if out.Stderr, cut = bounded(out.Stderr, maxText); cut || r.StderrCut > 0 {
		a.extra = append(a.extra, fullText(id, seq, "stderr"))
	}
	read := out
	read.Stdout, read.Stderr = repeated(out.Stdout), repeated(out.Stderr)
	a.value, a.text = out, read
	return a, nil
}

// clipped is text that says what is missing of it.
func clipped(b []byte, cut int64) string {
	s := strings.ToValidUTF8(string(b), "\ufffd")
	if cut > 0 {
		s += fmt.Sprintf("\n\n... [truncated — %d bytes total, showing first %d]", int64(len(b))+cut, len(b))
	}
	return s
}

type startedCommand struct {
	Success   bool   `json:"success"`
	CommandID int64  `json:"command_id" jsonschema:"what get_output and kill_command are given"`
	Status    string `json:"status" jsonschema:"running"`
	Again     string `json:"session_restarted,omitempty" jsonschema:"why the session was started again, and what it has lost"`
}

// longestCommand bounds what start_command's timeout may be, in seconds.
const longestCommand = 7 * 24 * 60 * 60

func (d *Door) startCommandTool() tool {
	return tool{
		name: "start_command", title: "Start a command in the background",
		description: "Starts a shell command in the session's /workspace and returns at once, for servers and for work that takes longer than a " +
			"few minutes. get_output reads what it prints, kill_command ends it.",
		input: object([]string{"session_id", "command"}, map[string]*jsonschema.Schema{
			"session_id": sessionID(),
			"command":    filled("What to run, as for sh -c."),
			"timeout":    number(0, 0, longestCommand, "Seconds after which it is killed; 0 is never."),
		}),
		output: shape[startedCommand](), destructive: true, open: true,
		run: func(ctx context.Context, c *call) (answer, error) {
			id, command := c.text("session_id"), c.text("command")
			limit := time.Duration(c.number("timeout", 0, 0, longestCommand)) * time.Second
			if err := c.check(); err != nil {
				return answer{}, err
			}
			if err := c.running(ctx, id); err != nil {
				return answer{}, err
			}
			x, err := c.core.Execs().Start(ctx, id, sandbox.ExecSpec{Shell: command, Timeout: &limit})
			if err != nil {
				return answer{}, err
			}
			again, err := c.restarted(ctx, id)
			return answer{value: startedCommand{true, x.Seq, string(x.Status), again}}, err
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

func (d *Door) getOutputTool() tool {
	return tool{
		name: "get_output", title: "Read a command's output",
		description: "Returns what a command of start_command (or any earlier call) has printed since an offset, and how it ended.",
		input: object([]string{"session_id", "command_id"}, map[string]*jsonschema.Schema{
			"session_id": sessionID(),
			"command_id": commandID(),
			"offset":     number(0, 0, 1<<53, "next_offset of the call before; 0 is the beginning."),
			"wait":       number(0, 0, longestWait, "Seconds to wait for the end of the command."),
		}),
		output: shape[commandOutput](), readOnly: true, idempotent: true, run: getOutput,
	}
}

func getOutput(ctx context.Context, c *call) (answer, error) {
	id, seq := c.text("session_id"), c.commandID()
	offset := c.number("offset", 0, 0, 1<<53)
	wait := time.Duration(c.number("wait", 0, 0, longestWait)) * time.Second
	if err := c.check(); err != nil {
		return answer{}, err
	}
	if _, err := c.session(ctx, id); err != nil {
		return answer{}, err
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.door.life, cancel)()
	if wait > 0 {
		done := c.progress(waiting, id, seq)
		_, err := c.core.Execs().Wait(waiting, id, seq, wait)
		done()
		if err != nil && c.door.life.Err() == nil {
			return answer{}, err
		}
	}
	x, err := c.core.Execs().Get(ctx, id, seq)
	if err != nil {
		return answer{}, err
	}
	out := commandOutput{Success: true, CommandID: seq, Status: string(x.Status), NextOffset: offset}
	if x.Exit != nil {
		out.ExitCode, out.Reason = x.Exit.Code, string(x.Exit.Reason)
	}
	var stdout, stderr []byte
	room := maxRepeated // there is always more to be had
	for entry, err := range c.core.Execs().Output(ctx, id, seq, offset, false) {
		if err != nil {
			return answer{}, err
		}
		if entry.Exit != nil {
			break
		}
		o := entry.Output
		to := &stdout
		if o.Stream == sandbox.Stderr {
			to = &stderr
		}
		if fits := head(string(o.Data), room); len(fits) < len(o.Data) {
			o.Data, out.More = []byte(fits), true
			o.Data = o.Data[:len(o.Data)-front.PartialRune(o.Data)]
		}
		room -= weight(string(o.Data))
		if o.Stream != sandbox.Rich {
			*to = append(*to, o.Data...)
		}
		out.NextOffset = o.Offset + int64(len(o.Data))
		if out.More {
			break
		}
	}
	out.Stdout, out.Stderr = clipped(stdout, 0), clipped(stderr, 0)
	return answer{value: out}, nil
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

func (d *Door) killCommandTool() tool {
	return tool{
		name: "kill_command", title: "Kill a command",
		description: "Ends a command and everything that it started. Ending one that has ended does nothing to it.",
		input: object([]string{"session_id", "command_id"}, map[string]*jsonschema.Schema{
			"session_id": sessionID(), "command_id": commandID(),
		}),
		output: shape[killedCommand](), destructive: true, idempotent: true,
		run: func(ctx context.Context, c *call) (answer, error) {
			id, seq := c.text("session_id"), c.commandID()
			if err := c.check(); err != nil {
				return answer{}, err
			}
			if _, err := c.session(ctx, id); err != nil {
				return answer{}, err
			}
			x, err := c.core.Execs().Cancel(ctx, id, seq)
			out := killedCommand{Success: err == nil, Status: string(x.Status)}
			if x.Exit != nil {
				out.ExitCode = x.Exit.Code
			}
			return answer{value: out}, err
		},
	}
}
