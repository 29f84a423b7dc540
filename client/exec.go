package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/client/internal/texts"
)

// ExecOptions is one command to run. Exactly one of Argv and Shell is set;
// [Command] and [Shell] make one.
type ExecOptions struct {
	Argv  []string
	Shell string // through bash -c, or sh -c where the image has no bash
	Cwd   string // default /workspace, or where the session is
	Env   map[string]string
	User  string // default the sandbox's
	// Session names a session shell: its commands run one after another, and
	// what a line of Shell changes (directory, variables, functions, …) is
	// there for the next. Cwd and Env are for this command only.
	Session string
	// Stdin keeps the command's input open for [Process.Stdin].
	Stdin bool
	// PTY gives the command a terminal of that size.
	PTY *WindowSize
	// Stdout and Stderr, where [Client.Exec] is given them, hear what the
	// command prints while it runs. A write that fails ends the call.
	Stdout, Stderr io.Writer
	// KillOnCancel kills the command when the context of [Client.Exec] ends
	// before it, or the call fails by a write to Stdout or Stderr. Without it
	// the command goes on.
	KillOnCancel bool
	// Timeout kills the command with all its children; zero is the
	// sandbox's default, [NoTimeout] is none.
	Timeout time.Duration
}

// NoTimeout lets a command run for ever.
const NoTimeout time.Duration = -1

// WindowSize is a terminal's size in characters.
type WindowSize struct {
	Cols int `json:"cols"`
	Rows int `json:"rows"`
}

// Command runs a program with arguments, without a shell.
func Command(name string, args ...string) ExecOptions {
	return ExecOptions{Argv: append([]string{name}, args...)}
}

// Shell runs a line of shell.
func Shell(line string) ExecOptions { return ExecOptions{Shell: line} }

// wire is the request's JSON.
func (o ExecOptions) wire() map[string]any {
	m := map[string]any{}
	if o.Shell != "" {
		m["cmd"] = o.Shell
	} else {
		m["cmd"] = append([]string{}, o.Argv...)
	}
	if o.Cwd != "" {
		m["cwd"] = o.Cwd
	}
	if len(o.Env) > 0 {
		m["env"] = o.Env
	}
	if o.User != "" {
		m["user"] = o.User
	}
	if o.Session != "" {
		m["session"] = o.Session
	}
	if o.Stdin {
		m["stdin"] = true
	}
	if o.PTY != nil {
		m["pty"] = o.PTY
	}
	switch {
	case o.Timeout < 0:
		m["timeout_seconds"] = 0
	case o.Timeout > 0:
		m["timeout_seconds"] = o.Timeout.Seconds()
	}
	return m
}

// Exec is one command of a sandbox: how it stands, and when it has finished
// how it ended.
type Exec struct {
	Seq    int64      `json:"seq"` // 1, 2, 3 … within the sandbox
	Status ExecStatus `json:"status"`
	// Kind names the operation, "git.clone"; "" is a plain command. Detail is
	// what it was asked, and Result what came of it once it has finished.
	Kind   string          `json:"kind,omitempty"`
	Detail json.RawMessage `json:"detail,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	// Session and Terminal name the session shell that runs it, or the
	// terminal whose program it is.
	Session  string `json:"session,omitempty"`
	Terminal string `json:"terminal,omitempty"`
	Service  string `json:"service,omitempty"` // whose run this is
	Cmd      Cmd    `json:"cmd"`               // empty for a cell
	// Code, Kernel and Language are those of a cell.
	Code     string `json:"code,omitempty"`
	Kernel   string `json:"kernel,omitempty"`
	Language string `json:"language,omitempty"`
	Cwd      string `json:"cwd,omitempty"`
	User     string `json:"user,omitempty"`
	// Stdout and Stderr are the output as bytes; Go strings need not be
	// UTF-8. They are empty where the answer carries no output: in lists, at
	// the end of a stream, before the end.
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	// ExitCode is the command's own code, 128 + signal when a signal ended
	// it; nil while it runs, and when nobody can know.
	ExitCode *int   `json:"exit_code"`
	Signal   string `json:"signal,omitempty"`
	// Reason says honestly why it ended: "exited", "timeout", "oom",
	// "killed", "container_died", …
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"` // for people
	// DurationMS is the running time in milliseconds.
	DurationMS        float64 `json:"duration_ms,omitempty"`
	RestoreIncomplete string  `json:"restore_incomplete,omitempty"` // what is gone, if the memory of the sandbox that it woke was lost
	// Truncated counts bytes that were left out of Stdout and Stderr.
	Truncated *Truncated `json:"truncated,omitempty"`
	// OutputPruned says that the output was removed to make room for later
	// ones, and Stdout and Stderr are empty because of that.
	OutputPruned bool       `json:"output_pruned,omitempty"`
	CreatedAt    time.Time  `json:"created_at"`
	StartedAt    *time.Time `json:"started_at,omitempty"`
	FinishedAt   *time.Time `json:"finished_at,omitempty"`
}

// Truncated counts bytes of output that were left out.
type Truncated struct {
	Stdout int64 `json:"stdout,omitempty"`
	Stderr int64 `json:"stderr,omitempty"`
	Rich   int64 `json:"rich,omitempty"` // of what a cell shows beside text
}

// ExecStatus is where an exec stands.
type ExecStatus string

// The statuses of an exec.
const (
	ExecPending ExecStatus = "pending"
	ExecRunning ExecStatus = "running"
	ExecDone    ExecStatus = "done"  // the command itself ended, with any code
	ExecError   ExecStatus = "error" // something else ended it; Reason says what
)

// Finished reports whether nothing will change any more.
func (e Exec) Finished() bool { return e.Status == ExecDone || e.Status == ExecError }

// Err is nil when the command ended with exit code 0 by itself, and otherwise
// an [*ExitError].
func (e Exec) Err() error {
	if e.Status == ExecDone && e.ExitCode != nil && *e.ExitCode == 0 {
		return nil
	}
	return &ExitError{Exec: e}
}

// ExitError is a command that did not end well.
type ExitError struct{ Exec Exec }

// Error says how it ended, which command it was, and the end of what it wrote
// to stderr.
func (e *ExitError) Error() string {
	what := e.Exec.ending()
	if line := e.Exec.Cmd.String(); line != "" {
		what += ": " + line
	}
	if said := texts.Tail(e.Exec.Stderr); said != "" {
		what += "\n" + said
	}
	return what
}

// ending says in a few words how the command ended.
func (e Exec) ending() string {
	if e.Message != "" {
		return e.Message
	}
	what := "unknown exit"
	if e.ExitCode != nil {
		what = fmt.Sprintf("exit code %d", *e.ExitCode)
	}
	if e.Reason != "" && e.Reason != "exited" {
		what += " (" + e.Reason + ")"
	}
	return what
}

// String is short, for logs: the number, where it stands, and the command.
func (e Exec) String() string {
	what := string(e.Status)
	if e.Finished() {
		what = e.ending()
	}
	if line := e.Cmd.String(); line != "" {
		what += ": " + line
	}
	return fmt.Sprintf("exec %d: %s", e.Seq, what)
}

// UnmarshalJSON decodes output that came as base64 because it is not UTF-8.
func (e *Exec) UnmarshalJSON(data []byte) error {
	type plain Exec
	w := struct {
		*plain
		StdoutEncoding string `json:"stdout_encoding"`
		StderrEncoding string `json:"stderr_encoding"`
	}{plain: (*plain)(e)}
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	var err error
	if e.Stdout, err = texts.Decode(e.Stdout, w.StdoutEncoding); err != nil {
		return fmt.Errorf("stdout: %w", err)
	}
	if e.Stderr, err = texts.Decode(e.Stderr, w.StderrEncoding); err != nil {
		return fmt.Errorf("stderr: %w", err)
	}
	return nil
}

// MarshalJSON writes the form that UnmarshalJSON takes: what is not UTF-8 as
// base64.
func (e Exec) MarshalJSON() ([]byte, error) {
	type plain Exec
	w := struct {
		plain
		StdoutEncoding string `json:"stdout_encoding,omitempty"`
		StderrEncoding string `json:"stderr_encoding,omitempty"`
	}{plain: plain(e)}
	w.Stdout, w.StdoutEncoding = texts.Encode(e.Stdout)
	w.Stderr, w.StderrEncoding = texts.Encode(e.Stderr)
	return plainJSON(w)
}

// Cmd is a command as it was given: a line of shell, or argv.
type Cmd struct {
	Argv  []string
	Shell string
}

// String is the command on one line, cut where it is long.
func (c Cmd) String() string {
	line := c.Shell
	if line == "" {
		words := make([]string, len(c.Argv))
		for i, a := range c.Argv {
			words[i] = texts.Quote(a)
		}
		line = strings.Join(words, " ")
	}
	return texts.Line(line)
}

// UnmarshalJSON takes a string or an array of strings.
func (c *Cmd) UnmarshalJSON(data []byte) error {
	*c = Cmd{}
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &c.Shell)
	}
	return json.Unmarshal(data, &c.Argv)
}

// MarshalJSON writes the form that UnmarshalJSON takes.
func (c Cmd) MarshalJSON() ([]byte, error) {
	if c.Shell != "" {
		return plainJSON(c.Shell)
	}
	return plainJSON(c.Argv)
}

// plainJSON is json.Marshal that leaves <, > and & as they are, which an
// encoder around a MarshalJSON cannot do any more.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// waitSlice is how long one request waits for an exec to end: short enough for
// proxies that cut silent connections.
const waitSlice = 50 * time.Second

// Exec runs a command and returns when it has ended, with its output. A
// command that fails is not an error of this call: see [Exec.Err]. When ctx
// ends the command goes on, unless KillOnCancel is set; [Client.StartExec]
// gives more control.
func (c *Client) Exec(ctx context.Context, id string, o ExecOptions) (Exec, error) {
	heard := o.Stdout != nil || o.Stderr != nil
	if heard || o.KillOnCancel {
		start := func(ctx context.Context) (*Process, error) { return c.StartExec(ctx, id, o) }
		return attended(ctx, c, o.KillOnCancel, start, func(p *Process) (Exec, error) {
			if heard {
				if _, err := p.Copy(ctx, o.Stdout, o.Stderr); err != nil {
					return Exec{}, err
				}
			}
			return p.Wait(ctx)
		})
	}
	body := o.wire()
	body["wait"] = true
	body["wait_seconds"] = int(waitSlice.Seconds())
	var e Exec
	if err := c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "exec"), json: body}, &e); err != nil {
		return e, err
	}
	if e.Finished() {
		return e, nil
	}
	return c.Process(id, e.Seq).Wait(ctx)
}

// StartExec starts a command and returns at once.
func (c *Client) StartExec(ctx context.Context, id string, o ExecOptions) (*Process, error) {
	body := o.wire()
	body["wait"] = false
	var e Exec
	if err := c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "exec"), json: body}, &e); err != nil {
		return nil, err
	}
	return c.Process(id, e.Seq), nil
}

// Execs returns up to limit commands of a sandbox after a seq, in order,
// without their output. A limit of 0 is the daemon's choice.
func (c *Client) Execs(ctx context.Context, id string, afterSeq int64, limit int) ([]Exec, error) {
	q := url.Values{}
	if afterSeq > 0 {
		q.Set("after_seq", strconv.FormatInt(afterSeq, 10))
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	var page struct {
		Execs []Exec `json:"execs"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: sandboxPath(id, "execs"), query: q}, &page)
	return page.Execs, err
}
