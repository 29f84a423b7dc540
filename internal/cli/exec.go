package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/cli/tty"
	"github.com/cubbyhq/cubby/internal/cli/values"
)

// execFlags are the flags of exec and run that describe a command.
type execFlags struct {
	cwd, user        string
	session          string
	env, envFiles    []string
	timeout          time.Duration
	interactive, tty bool
	asJSON           bool
}

// register adds the flags; withBox those that run takes for its sandbox.
func (e *execFlags) register(cmd *cobra.Command, withBox bool) {
	f := cmd.Flags()
	f.StringVarP(&e.cwd, "workdir", "w", "", "working `directory` (default /workspace)")
	f.DurationVar(&e.timeout, "timeout", 0, "time `limit`, such as 90s; 0: none (default: the sandbox's)")
	f.BoolVarP(&e.interactive, "interactive", "i", false, "hand on the input also when it is a terminal; -i=false: never")
	f.BoolVarP(&e.tty, "tty", "t", false, "give the command a terminal")
	f.BoolVar(&e.asJSON, "json", false, "wait and print the result with its output as JSON")
	if withBox {
		f.StringArrayVarP(&e.env, "env", "e", nil, "environment variable `KEY=VALUE`, or KEY to hand on one of here; repeatable")
		f.StringArrayVar(&e.envFiles, "env-file", nil, "`file` of KEY=VALUE lines; repeatable")
		f.StringVarP(&e.user, "user", "u", "", "`user`: sandbox or root (default: the sandbox's)")
		complete(cmd, "user", "sandbox", "root")
	}
}

func (e *execFlags) options(a *app, cmd *cobra.Command, argv []string) (client.ExecOptions, error) {
	o := client.ExecOptions{Argv: argv, Cwd: e.cwd, User: e.user}
	if e.session != "" {
		o.Session, o.Argv, o.Shell = e.session, nil, shellLine(argv)
	}
	var err error
	if o.Env, err = values.Environment(a.lookupEnv, e.env, e.envFiles); err != nil {
		return o, usageError{cmd, err}
	}
	if cmd.Flags().Changed("timeout") {
		o.Timeout = e.timeout
		if e.timeout <= 0 {
			o.Timeout = client.NoTimeout
		}
	}
	if e.tty {
		o.PTY = a.windowSize()
	}
	o.Stdin = e.tty || e.forwards(a, cmd)
	if cmd.Flags().Changed("interactive") && !e.interactive {
		o.Stdin = false
	}
	return o, nil
}

// lineHint says how to run what looks like a line of shell and was given as the
// name of a program.
func lineHint(argv []string) string {
	if len(argv) != 1 || !strings.ContainsAny(argv[0], " \t\n|&;<>$`*?(){}[]~") {
		return ""
	}
	return "for a line of shell: sh -c " + shellLine([]string{"", argv[0]})[3:]
}

// plainText is what no shell acts upon; a word of it may be an alias.
const plainText = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-"

// shellLine makes a line of shell out of arguments: one is a line already,
// several are its words.
func shellLine(argv []string) string {
	if len(argv) == 1 {
		return argv[0]
	}
	words := make([]string, len(argv))
	for i, word := range argv {
		words[i] = word
		if word == "" || strings.Trim(word, plainText) != "" {
			words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// forwards reports whether the input is handed on: always with -i, and when
// it is a pipe, a file or a socket, which somebody meant for the command.
func (e *execFlags) forwards(a *app, cmd *cobra.Command) bool {
	if cmd.Flags().Changed("interactive") {
		return e.interactive
	}
	f, ok := a.Stdin.(*os.File)
	if !ok {
		return a.Stdin != nil
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&(fs.ModeCharDevice|fs.ModeDir) == 0
}

func (e *execFlags) attachment(a *app, o client.ExecOptions) attachment {
	at := attachment{asJSON: e.asJSON}
	if o.Stdin {
		at.stdin = a.Stdin
	}
	if f, ok := tty.File(a.Stdin); ok && o.PTY != nil {
		at.terminal = f
	}
	return at
}

func (a *app) execCommand() *cobra.Command {
	var flags execFlags
	var detach bool
	cmd := &cobra.Command{
		Use:   "exec [flags] ID [--] command [args…]",
		Short: "run a command in a sandbox",
		Long: `Runs a command in a sandbox and streams its output. Input is handed on when it is
a pipe or a file, and with -i; -i=false keeps it for others.

Ctrl-C and SIGTERM go to the command; a second one kills it. If the connection
breaks, or the daemon restarts, the output goes on where it was. The exit code is
the command's own (128 + n when signal n ended it), and 125 when cubby itself
failed.

With --session the command is a line of a shell that lasts: directory, variables,
functions and the like are there for the next one. Several words are quoted; give
one argument for a line with operators.`,
		Example: `  cubby exec my-box -- ls -l
  cubby exec my-box -w /tmp -e A=1 --timeout 10s -- sh -c 'echo $A'
  cubby exec my-box --session main -- 'cd src && export V=1'
  cubby exec -d my-box -- make all        prints the number for: cubby logs -f my-box N`,
		Annotations:       map[string]string{ownExit: "yes"},
		Args:              needCommand(1),
		ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			// Flags may also stand between the id and the command.
			id := args[0]
			if err := cmd.Flags().Parse(args[1:]); err != nil {
				return own(usageError{cmd, likelyFlag(cmd, err)})
			}
			argv := cmd.Flags().Args()
			if len(argv) == 0 {
				return own(usageError{cmd, errors.New("which command? give it after the id")})
			}
			return own(a.exec(cmd, id, &flags, argv, detach))
		},
	}
	cmd.Flags().SetInterspersed(false)
	flags.register(cmd, true)
	cmd.Flags().StringVar(&flags.session, "session", "", "session `name`: run it as a line of that session's shell, after those before it")
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "print the command's number and return")
	return cmd
}

func (a *app) exec(cmd *cobra.Command, id string, flags *execFlags, argv []string, detach bool) error {
	o, err := flags.options(a, cmd, argv)
	if err != nil {
		return err
	}
	if detach && !cmd.Flags().Changed("interactive") {
		o.Stdin = false
	}
	p, err := a.client().StartExec(cmd.Context(), id, o)
	if err != nil {
		return err
	}
	if detach {
		if flags.asJSON {
			return format.JSON(a.Stdout, map[string]any{"id": id, "seq": p.Seq})
		}
		fmt.Fprintln(a.Stdout, p.Seq)
		return nil
	}
	return a.attach(cmd.Context(), p, flags.attachment(a, o))
}
