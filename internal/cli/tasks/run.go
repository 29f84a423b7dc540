package tasks

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/client/task"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/cli/values"
)

// runFlags are the flags of run.
type runFlags struct {
	showing
	agent, model, cwd, protocol, resume string
	env, envFiles, secrets              []string
	timeout                             time.Duration
	ask, detach, asJSON                 bool
}

func (a Env) run() *cobra.Command {
	var flags runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] ID PROMPT [-- COMMAND…]",
		Short: "give a task to a coding agent and show what it does",
		Long: `Starts a coding agent on a directory of a sandbox and shows what it says and does until
it has ended; then what it changed, and where the application is seen if one listens.
The prompt - is the input. A COMMAND is another agent than those of --agent: it speaks
--protocol on its standard streams.

Ctrl-C cancels the task; a second one leaves it running. If the connection breaks, or the
daemon restarts, the events go on where they were. The exit code is 0 when the task
succeeded, 1 when it failed, 130 when it was cancelled, and 125 when cubby itself failed.

The agent gets the secrets of its provider that the operator has set (see "cubby secret")
and what --env gives it.`,
		Example: `  cubby task run my-app "make a page that shows the time" --agent claude
  cubby task run my-app - --agent codex --ask --cwd shop < prompt.txt
  cubby task run my-app "and now in blue" --resume 01jd…
  cubby task run my-app "hello" --protocol json-lines -- sh -c 'echo hi > made.txt'`,
		Annotations:       map[string]string{a.OwnExit: "yes"},
		Args:              twoBeforeDash,
		ValidArgsFunction: a.Complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Own(a.start(cmd, args, &flags))
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.agent, "agent", "", "`name` of the agent: opencode, claude, codex or gemini (default opencode)")
	f.StringVar(&flags.model, "model", "", "`model`, as the agent names it (default the agent's)")
	f.StringVarP(&flags.cwd, "cwd", "w", "", "`directory` of the project, made when it is missing (default /workspace)")
	f.StringVar(&flags.protocol, "protocol", "", "what COMMAND speaks: `acp` or json-lines (default acp)")
	f.StringVar(&flags.resume, "resume", "", "`task` of the same agent whose session goes on")
	f.StringArrayVarP(&flags.env, "env", "e", nil, "variable of the agent alone, `KEY=VALUE`, or KEY to hand on one of here; repeatable")
	f.StringArrayVar(&flags.envFiles, "env-file", nil, "`file` of KEY=VALUE lines; repeatable")
	f.StringArrayVar(&flags.secrets, "secret", nil, "`name` of a further secret of the operator for the agent; repeatable")
	f.DurationVar(&flags.timeout, "timeout", 0, "time `limit` of the agent, such as 30m; 0: none (default 10m)")
	f.BoolVar(&flags.ask, "ask", false, "ask here what the agent asks leave for, instead of allowing it")
	f.BoolVarP(&flags.detach, "detach", "d", false, "print the task's id and return")
	f.BoolVar(&flags.asJSON, "json", false, "wait and print the task with its result as JSON")
	flags.register(cmd)
	for flag, words := range map[string][]string{
		"agent": {"opencode", "claude", "codex", "gemini"}, "protocol": {task.ACP, task.JSONLines},
	} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // both exist
	}
	return cmd
}

// twoBeforeDash checks the arguments of run.
func twoBeforeDash(cmd *cobra.Command, args []string) error {
	n := cmd.ArgsLenAtDash()
	switch {
	case n < 0 && len(args) == 2, n == 2 && len(args) > 2:
		return nil
	case n < 0 && len(args) > 2:
		return errors.New("give the prompt as one argument, in quotes, and an agent's command after --")
	}
	return errors.New("give a sandbox's id and a prompt")
}

func (a Env) start(cmd *cobra.Command, args []string, flags *runFlags) error {
	o := task.Options{
		Prompt: args[1], Agent: flags.agent, Command: args[2:], Protocol: flags.protocol, Model: flags.model, Cwd: flags.cwd,
		Secrets: flags.secrets, Resume: flags.resume, Ask: flags.ask,
	}
	if cmd.Flags().Changed("timeout") {
		if o.Timeout = flags.timeout; flags.timeout <= 0 {
			o.Timeout = -1
		}
	}
	var err error
	if o.Env, err = values.Environment(a.Lookup, flags.env, flags.envFiles); err != nil {
		return a.Usage(cmd, err)
	}
	if o.Prompt == "-" {
		if flags.ask && !flags.detach {
			return a.Usage(cmd, errors.New("the input cannot have both the prompt and answers: give the prompt as an argument, or --detach"))
		}
		text, err := io.ReadAll(cmd.InOrStdin())
		if err != nil {
			return fmt.Errorf("read the prompt: %w", err)
		}
		o.Prompt = string(text)
	}
	tasks := a.Client().Tasks(args[0])
	t, err := tasks.Start(cmd.Context(), o)
	switch {
	case err != nil:
		return err
	case flags.detach && flags.asJSON:
		return format.JSON(cmd.OutOrStdout(), t)
	case flags.detach:
		_, err := fmt.Fprintln(cmd.OutOrStdout(), t.ID)
		return err
	}
	return a.attend(cmd, args[0], t.ID, flags)
}

// attend shows a task that runs until it has ended, asks its questions, and cancels
// it on a signal.
func (a Env) attend(cmd *cobra.Command, box, id string, flags *runFlags) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	w := &watch{
		cmd: cmd, tasks: a.Client().Tasks(box), box: box, id: id, show: a.newPrinter(cmd, box, id, flags.showing), quiet: flags.asJSON,
		lines: make(chan string), wanted: make(chan struct{}, 1), ask: flags.ask && !flags.asJSON,
	}
	signals := make(chan os.Signal, 8)
	defer a.Signals(func(sig os.Signal) {
		select {
		case signals <- sig:
		default: // there are enough
		}
	})()
	ended, err := w.follow(ctx, signals)
	if err := errors.Join(err, w.show.end()); err != nil {
		if errors.Is(err, errLeft) {
			w.note("task %s goes on: cubby task logs -f %s %s", id, box, id)
			return a.Exit(exitCancelled, nil)
		}
		return err
	}
	t, err := w.tasks.Wait(ctx, id)
	switch {
	case err != nil:
		return err
	case flags.asJSON:
		if err := format.JSON(cmd.OutOrStdout(), t); err != nil {
			return err
		}
	case ended && t.Status != task.Cancelled:
		if url := address(ctx, a.Client(), box); url != "" {
			if err := w.show.line("", url); err != nil {
				return err
			}
		}
	}
	switch t.Status {
	case task.Succeeded:
		return nil
	case task.Cancelled:
		return a.Exit(exitCancelled, nil)
	}
	return a.Exit(exitFailed, nil)
}

// watch is a task that is followed on a terminal.
type watch struct {
	cmd     *cobra.Command
	tasks   *client.Tasks
	box, id string
	show    *printer
	quiet   bool // shows no events
	ask     bool

	lines   chan string   // what is typed; closed at its end
	wanted  chan struct{} // asks for one more line
	open    []task.Question
	typing  bool // a line is being waited for
	reading bool // the input is
}

func (w *watch) note(text string, args ...any) {
	fmt.Fprintf(w.cmd.ErrOrStderr(), "cubby: "+text+"\n", args...)
}

// errLeft says that the user leaves the task running.
var errLeft = errors.New("the task was left running")

type arrival struct {
	event task.Event
	err   error
}

// follow shows events to the last one; ended is true when that came.
func (w *watch) follow(ctx context.Context, signals <-chan os.Signal) (ended bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	events := make(chan arrival)
	done := make(chan struct{})
	defer func() { cancel(); <-done }()
	go func() {
		defer close(done)
		defer close(events)
		for e, err := range w.tasks.Events(ctx, w.id, 0) {
			select {
			case events <- arrival{e, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	interrupted := false
	for {
		select {
		case e, ok := <-events:
			switch {
			case !ok:
				return ended, nil
			case e.err != nil:
				return false, e.err
			}
			ended = e.event.Type == task.DoneEvent
			if err := w.event(ctx, e.event); err != nil {
				return false, err
			}
		case text, ok := <-w.lines:
			w.typed(ctx, text, ok)
		case <-signals:
			if interrupted {
				return false, errLeft
			}
			interrupted = true
			w.note("cancelling the task; again to leave it running")
			go func() { // its events say how that goes
				if _, err := w.tasks.Cancel(ctx, w.id); err != nil && ctx.Err() == nil {
					w.note("cancel the task: %v", err)
				}
			}()
		}
	}
}

// event shows an event, and asks what it asks.
func (w *watch) event(ctx context.Context, e task.Event) error {
	if !w.quiet {
		if err := w.show.event(e); err != nil {
			return err
		}
	}
	if e.Type != task.PermissionEvent || !w.ask {
		return nil
	}
	v, err := e.Value()
	q, ok := v.(task.Question)
	if err != nil || !ok {
		return nil //nolint:nilerr // an agent's fault: nothing can be answered
	}
	for i, o := range w.open {
		if o.ID == q.ID {
			w.open = append(w.open[:i], w.open[i+1:]...)
			break
		}
	}
	if q.Status == "pending" && len(q.Options) > 0 {
		w.open = append(w.open, q)
		w.prompt(ctx)
	}
	return nil
}

// prompt waits for a line that answers the oldest question.
func (w *watch) prompt(ctx context.Context) {
	if len(w.open) == 0 || w.lines == nil {
		return
	}
	fmt.Fprintf(w.cmd.ErrOrStderr(), "answer 1 to %d: ", len(w.open[0].Options))
	if w.typing {
		return
	}
	if !w.reading {
		w.reading = true
		go read(ctx, w.cmd.InOrStdin(), w.wanted, w.lines)
	}
	w.typing = true
	w.wanted <- struct{}{}
}

// read reads a line of the input each time one is wanted, and closes lines at its
// end.
func read(ctx context.Context, in io.Reader, wanted <-chan struct{}, lines chan<- string) {
	typed := bufio.NewReader(in)
	for {
		select {
		case <-wanted:
		case <-ctx.Done():
			return
		}
		text, err := typed.ReadString('\n')
		if text != "" {
			select {
			case lines <- text:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			close(lines)
			return
		}
	}
}

// typed takes a line as the answer to the oldest question.
func (w *watch) typed(ctx context.Context, text string, ok bool) {
	w.typing = false
	if !ok {
		w.lines = nil
		w.note("nobody answers here: cubby task answer %s %s QUESTION OPTION", w.box, w.id)
		return
	}
	if len(w.open) == 0 {
		return
	}
	q := w.open[0]
	option, known := optionOf(q, strings.TrimSpace(text))
	if known {
		if err := w.tasks.Answer(ctx, w.id, q.ID, option); err != nil && !errors.Is(err, client.WrongState) {
			w.note("answer: %v", err)
		} else {
			w.open = w.open[1:]
		}
	}
	w.prompt(ctx)
}

// optionOf is the option that a line names: by its number, its id, or y and n for the
// first that allows and rejects.
func optionOf(q task.Question, text string) (string, bool) {
	if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= len(q.Options) {
		return q.Options[n-1].ID, true
	}
	kind := map[string]string{"y": "allow_", "yes": "allow_", "n": "reject_", "no": "reject_"}[strings.ToLower(text)]
	for _, o := range q.Options {
		if text != "" && o.ID == text || kind != "" && strings.HasPrefix(o.Kind, kind) {
			return o.ID, true
		}
	}
	return "", false
}
