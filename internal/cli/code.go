package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/cli/prompt"
	"github.com/cubbyhq/cubby/internal/cli/render"
	"github.com/cubbyhq/cubby/internal/cli/tty"
)

// codeFlags are the flags of code.
type codeFlags struct {
	code             string
	language, kernel string
	timeout          time.Duration
	files            string
	asJSON           bool
}

func (a *app) codeCommand() *cobra.Command {
	var flags codeFlags
	cmd := &cobra.Command{
		Use:   "code [flags] ID [FILE|-]",
		Short: "run code in a kernel that keeps its state, or talk to it",
		Long: `Runs one cell of code (of -c, a file, or the input) in a kernel of a sandbox and
shows what it prints, its result and what it displays. What a cell defines is there
for the next one. Without code, on a terminal, it is a prompt: Tab completes, ?name or
name? shows what the kernel knows about a name, Ctrl-C interrupts the cell. Ctrl-D, exit
and quit leave it; the kernel lives on with its state until cubby kernels rm ends it.

Images appear in terminals that can show them (kitty, Ghostty, iTerm2, WezTerm), and
otherwise become files, whose names are printed. The exit code is 0 when the code ran
well, 1 when it did not, and 125 when cubby itself failed.`,
		Example: `  cubby code my-box                          a Python prompt
  cubby code my-box -c 'import math; math.pi'
  cubby code my-box --language r plot.R
  cubby code my-box --kernel second --timeout 10s - < cell.py`,
		Annotations:       map[string]string{ownExit: "yes"},
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return own(a.code(cmd, args, &flags))
		},
	}
	f := cmd.Flags()
	f.StringVarP(&flags.code, "code", "c", "", "the `code` itself")
	f.StringVar(&flags.language, "language", "", "`name` of the language (default: the kernel's, the sandbox's runtime, python)")
	f.StringVar(&flags.kernel, "kernel", "", "`name` of the kernel, made when there is none (default: the language's)")
	f.DurationVar(&flags.timeout, "timeout", 0, "time `limit` of a cell, such as 90s; 0: none (default: the sandbox's)")
	f.StringVar(&flags.files, "files", "", "`directory` for images and the like (default: a new one)")
	f.BoolVar(&flags.asJSON, "json", false, "wait and print the result with all output as JSON")
	complete(cmd, "language", "python", "node", "r", "bash")
	return cmd
}

func (a *app) code(cmd *cobra.Command, args []string, flags *codeFlags) error {
	r := client.CodeRequest{Language: flags.language, Kernel: flags.kernel}
	if cmd.Flags().Changed("timeout") {
		r.Timeout = flags.timeout
		if flags.timeout <= 0 {
			r.Timeout = client.NoTimeout
		}
	}
	id := args[0]
	terminal, onTerminal := tty.File(a.Stdin)
	fromStdin := false
	switch given := cmd.Flags().Changed("code"); {
	case given && len(args) == 2:
		return usageError{cmd, errors.New("give a file or -c, not both")}
	case given:
		r.Code = flags.code
	case len(args) == 2 && args[1] != "-":
		text, err := os.ReadFile(args[1])
		if err != nil {
			return err
		}
		r.Code = string(text)
	case len(args) == 1 && onTerminal:
		if flags.asJSON {
			return usageError{cmd, errors.New("a prompt has no JSON: give a file or -c")}
		}
		return prompt.Run(cmd.Context(), prompt.Options{
			Client: a.client(), Request: r, Show: a.showing(id, flags.files), TTY: terminal, Stdin: a.Stdin, Stdout: a.Stdout,
			Getenv: a.getenv, Signals: a.takeSignals,
		})
	default:
		text, err := io.ReadAll(orNothing(a.Stdin))
		if err != nil {
			return err
		}
		r.Code, fromStdin = string(text), true
	}
	r.Stdin = !fromStdin && !flags.asJSON && a.Stdin != nil
	return a.runCell(cmd.Context(), id, r, flags)
}

func orNothing(r io.Reader) io.Reader {
	if r == nil {
		return strings.NewReader("")
	}
	return r
}

// runCell runs one cell and shows it.
func (a *app) runCell(ctx context.Context, id string, r client.CodeRequest, flags *codeFlags) error {
	p, err := a.client().StartCode(ctx, id, r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The first signal interrupts the cell, a second one does not wait for it.
	signals := 0
	giveBack := a.takeSignals(func(os.Signal) {
		if signals++; signals == 1 {
			go func() { _ = p.Cancel(ctx) }() // the stream reports the end
		} else {
			cancel()
		}
	})
	defer giveBack()
	if flags.asJSON {
		if _, err := p.Wait(ctx); err != nil {
			return err
		}
		e, err := a.client().Code(ctx, id, p.Seq)
		if err != nil {
			return err
		}
		if err := format.JSON(a.Stdout, e); err != nil {
			return err
		}
		return cellExit(e)
	}
	show := render.New(a.showing(id, flags.files))
	answers := a.answers(ctx, p)
	for o, err := range p.StreamCode(ctx, 0) {
		switch {
		case err != nil:
			return err
		case o.Input != nil:
			show.Keep()
			go answers(*o.Input)
		case o.Done != nil:
			show.End(*o.Done)
			return cellExit(*o.Done)
		default:
			if err := show.Output(p.Seq, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// showing is how cells of a sandbox are shown on the streams of the command, with
// files in dir, "" for a new one.
func (a *app) showing(id, dir string) render.Options {
	o := render.Options{Out: a.Stdout, ErrOut: a.Stderr, Note: a.note, Box: id, Dir: dir}
	if _, ok := tty.File(a.Stdout); ok {
		o.Images, o.Size = render.ProtocolOf(a.getenv), a.windowSize
	}
	_, o.Colors = tty.File(a.Stderr)
	return o
}

// cellExit is the exit code of a cell, nil for 0.
func cellExit(e client.Execution) error {
	switch {
	case e.Success:
		return nil
	case e.Reason == "not_started":
		return &codeError{exitOwn, nil}
	}
	return &codeError{exitError, nil}
}

// answers hands a line of the input to the cell for each question. The end of
// the input is one for the cell.
func (a *app) answers(ctx context.Context, p *client.Process) func(client.InputRequest) {
	to := p.Stdin(ctx)
	lines := bufio.NewReader(orNothing(a.Stdin))
	turn := make(chan struct{}, 1)
	turn <- struct{}{}
	return func(q client.InputRequest) {
		select {
		case <-turn:
		case <-ctx.Done():
			return
		}
		defer func() { turn <- struct{}{} }()
		fmt.Fprint(a.Stdout, q.Prompt)
		line, err := a.answer(lines, q.Password)
		if line != "" || err == nil {
			_, werr := io.WriteString(to, strings.TrimRight(line, "\r\n")+"\n")
			err = errors.Join(err, werr)
		}
		if errors.Is(err, io.EOF) {
			err = to.Close()
		}
		if err != nil {
			a.feedFailed(ctx, err)
		}
	}
}

func (a *app) answer(lines *bufio.Reader, password bool) (string, error) {
	if f, ok := tty.File(a.Stdin); ok && password {
		secret, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(a.Stdout)
		return string(secret), err
	}
	return lines.ReadString('\n')
}
