// Package chat is the command that talks with cubby's agent: a conversation on a terminal,
// or one question whose answer is printed. It shows answers while they are written, what
// tools do, and asks what the agent may not do unasked. What models and tools say is
// shown, and never obeyed by the terminal.
package chat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/client/agent"
	"github.com/cubbyhq/cubby/internal/cli/edit"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/cli/markdown"
	"github.com/cubbyhq/cubby/internal/cli/tty"
)

// Env is what the command needs.
type Env struct {
	Client func() *client.Client
	Usage  func(*cobra.Command, error) error // makes an error one of usage
	// Exit makes an error that ends the process with a code of its own; a nil err says
	// nothing.
	Exit func(code int, err error) error
	// Signals makes handle see all signals until giveBack is called.
	Signals func(handle func(os.Signal)) (giveBack func())
	Lookup  func(name string) (string, bool) // of the environment
}

// The exit codes of a single question.
const (
	exitWaits     = 3
	exitCancelled = 130
)

type flags struct {
	model, thread, sandbox, files string
	images                        []string
	last, yes, no, asJSON, talks  bool
}

// Command is that of a chat.
func Command(e Env) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "chat [flags] [PROMPT]",
		Short: "talk with the agent, which works in sandboxes of its own",
		Long: `Without a prompt, on a terminal, it is a conversation that goes on where the last one
was left; /help lists its commands. Ctrl-C ends the agent's turn, Ctrl-D the chat. With
a prompt it begins a new thread, shows the answer and ends.

The prompt may come from the input too, behind that of the command line. Then, and
without a terminal, only the answer is printed. The exit code is 0 when the agent has
answered, 1 when it failed, 3 when it waits for leave to use a tool that nobody was there
to give, and 130 when it was cancelled.

The daemon needs a model for the agent: see "cubby settings".`,
		Example: `  cubby chat
  cubby chat "Write a Python script that prints the first 20 fibonacci numbers"
  cubby chat "What does this plot show?" --image plot.png
  cat error.log | cubby chat "why?"
  cubby chat --continue "and how is it repaired?"`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return e.run(cmd, args, f) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.model, "model", "", "`model`, as provider/model (default that of the settings)")
	fs.StringVar(&f.thread, "thread", "", "`id` of the thread to go on with; asks before it begins one with a new id")
	fs.BoolVarP(&f.last, "continue", "c", false, "go on with the last thread")
	fs.StringVar(&f.sandbox, "sandbox", "", "`id` of a sandbox to work in, instead of the thread's own")
	fs.StringArrayVar(&f.images, "image", nil, "image `file` that belongs to the prompt; repeatable")
	fs.StringVar(&f.files, "files", "", "`directory` for images that the agent shows (default: a new one)")
	fs.BoolVar(&f.yes, "yes", false, "allow the agent what it asks leave for")
	fs.BoolVar(&f.no, "no", false, "refuse the agent what it asks leave for")
	fs.BoolVar(&f.asJSON, "json", false, "print one line of JSON for each event")
	fs.BoolVarP(&f.talks, "verbose", "v", false, "tell on the standard error what tools do")
	cmd.MarkFlagsMutuallyExclusive("yes", "no")
	cmd.MarkFlagsMutuallyExclusive("thread", "continue")
	return cmd
}

// chat is a conversation.
type chat struct {
	env    Env
	c      *client.Client
	agent  *agent.Client
	state  state
	errOut io.Writer

	thread, model, sandbox string
	named                  bool // the user has named the thread

	view view
	// decide answers what the agent asks; nil: nobody can.
	decide func(ctx context.Context, i agent.Interrupt) (any, error)
	// interrupts brings Ctrl-C and SIGINT; keys, when not nil, what is typed.
	interrupts chan struct{}
	keys       *edit.Keys
}

func (e Env) run(cmd *cobra.Command, args []string, f flags) error {
	terminal, in := tty.File(cmd.InOrStdin())
	_, out := tty.File(cmd.OutOrStdout())
	request, err := f.prompt(cmd.InOrStdin(), in, args)
	if err != nil {
		return e.Usage(cmd, err)
	}
	c := e.Client()
	s := &chat{
		env: e, c: c, agent: agent.New(c), state: openState(e.getenv), errOut: cmd.ErrOrStderr(),
		thread: f.thread, named: f.thread != "", model: f.model, sandbox: f.sandbox, interrupts: make(chan struct{}, 1),
	}
	asked := request.Text != "" || len(request.Images) > 0
	converses := in && out && !f.asJSON
	switch {
	case !asked && !converses:
		return e.Usage(cmd, errors.New("give a prompt"))
	case s.thread != "":
	case f.last || !asked:
		s.thread = s.state.last()
	}
	if f.last && s.thread == "" {
		return e.Usage(cmd, errors.New("there was no thread yet"))
	}
	if s.thread == "" {
		s.thread = newThread()
	}
	switch {
	case f.yes:
		s.decide = always(agent.Decision{Type: "approve"})
	case f.no:
		s.decide = always(agent.Decision{Type: "reject"})
	}
	show := shown{c: c, dir: f.files}
	_, plain := e.Lookup("NO_COLOR")
	if converses {
		return s.converse(cmd.Context(), conversation{
			tty: terminal, in: cmd.InOrStdin(), out: cmd.OutOrStdout(), colors: !plain, show: &show, first: request, once: asked,
		})
	}
	switch {
	case f.asJSON:
		s.view = jsonView{cmd.OutOrStdout()}
	case out:
		columns := func() int { return tty.Size(cmd.OutOrStdout()).Cols }
		s.view = &plainView{out: cmd.OutOrStdout(), note: s.verbose(f.talks), text: markdown.New(cmd.OutOrStdout(), markdown.Options{Columns: columns, Colors: !plain})}
	default:
		s.view = &plainView{out: cmd.OutOrStdout(), note: s.verbose(f.talks)}
	}
	return s.once(cmd.Context(), request)
}

func (e Env) getenv(name string) string {
	v, _ := e.Lookup(name)
	return v
}

// verbose prints lines beside the answer, or nothing.
func (s *chat) verbose(on bool) func(format string, args ...any) {
	if !on {
		return func(string, ...any) {}
	}
	return func(format string, args ...any) { fmt.Fprintf(s.errOut, format+"\n", args...) }
}

// once asks one question without a terminal to ask back at.
func (s *chat) once(ctx context.Context, r agent.RunRequest) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer s.env.Signals(func(os.Signal) { s.interrupt() })()
	if s.named {
		switch there, err := s.exists(ctx); {
		case err != nil:
			return err
		case !there: // a script may choose its own ids
			fmt.Fprintf(s.errOut, "cubby: there is no thread %s yet: it begins now\n", format.Printable(s.thread))
		}
	}
	s.state.keep(s.thread)
	return s.exit(s.turn(ctx, r))
}

// exists reports whether there is the thread.
func (s *chat) exists(ctx context.Context) (bool, error) {
	_, err := s.agent.Thread(ctx, s.thread)
	if errors.Is(err, client.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// interrupt asks the turn to end.
func (s *chat) interrupt() {
	select {
	case s.interrupts <- struct{}{}:
	default: // there is one already
	}
}

// exit gives the outcome of a turn its exit code.
func (s *chat) exit(err error) error {
	switch {
	case errors.Is(err, errCancelled):
		return s.env.Exit(exitCancelled, nil)
	case errors.Is(err, errWaits), errors.Is(err, errOpen):
		return s.env.Exit(exitWaits, fmt.Errorf("%w: see --yes and --no, or go on with cubby chat --thread %s", err, s.thread))
	}
	return err
}

// explained adds how a model is set to an error that says there is none.
func explained(err error) error {
	var e *client.Error
	if !errors.As(err, &e) || e.Code != client.Unready || strings.Contains(e.Hint, "CUBBY_AGENT_MODEL") {
		return err
	}
	more := *e
	if more.Hint != "" {
		more.Hint += "\n"
	}
	more.Hint += "for example: cubby settings set model anthropic/claude-sonnet-4-5, or start the daemon with\nCUBBY_AGENT_MODEL and the key of its provider, such as ANTHROPIC_API_KEY"
	return &more
}
