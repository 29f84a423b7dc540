package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/cli/tty"
)

// terminalFlags are those of terminal.
type terminalFlags struct {
	options    client.TerminalOptions
	detachKeys string
	list, kill bool
	asJSON     bool
}

func (a *app) terminalCommand() *cobra.Command {
	var flags terminalFlags
	cmd := &cobra.Command{
		Use:   "terminal [flags] ID",
		Short: "open a terminal that stays, or come back to it",
		Long: `Attaches to a terminal of a sandbox by its name, and makes it when there is none.
Several can look at one and type; what it showed before is shown first.

Every key goes to the sandbox but the detach keys, which leave the terminal
running. It also goes on when the connection breaks or the daemon restarts. The
exit code is that of the terminal's program, 0 after a detach, and 125 when cubby
itself failed.`,
		Example: `  cubby terminal my-box              ctrl-p ctrl-q leaves it; the same comes back
  cubby terminal -n build my-box --cmd 'make all'
  cubby terminal --list my-box
  cubby terminal --kill -n build my-box`,
		Annotations:       map[string]string{ownExit: "yes"},
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return own(a.terminal(cmd, args[0], &flags))
		},
	}
	f := cmd.Flags()
	f.StringVarP(&flags.options.Name, "name", "n", "main", "`name` of the terminal")
	f.StringVar(&flags.options.Cmd, "cmd", "", "what a new one runs, through the shell (default: an interactive shell)")
	f.StringVarP(&flags.options.Cwd, "workdir", "w", "", "working `directory` of a new one (default /workspace)")
	f.StringVarP(&flags.options.User, "user", "u", "", "`user` of a new one: sandbox or root (default: the sandbox's)")
	f.StringVar(&flags.detachKeys, "detach-keys", "ctrl-p,ctrl-q", "`keys` that leave the terminal; \"\": none")
	f.BoolVar(&flags.list, "list", false, "list the open terminals")
	f.BoolVar(&flags.kill, "kill", false, "kill the terminal's program")
	jsonFlag(cmd, &flags.asJSON)
	cmd.MarkFlagsMutuallyExclusive("list", "kill")
	complete(cmd, "user", "sandbox", "root")
	return cmd
}

func (a *app) terminal(cmd *cobra.Command, id string, flags *terminalFlags) error {
	ctx := cmd.Context()
	switch {
	case flags.list:
		return a.listTerminals(ctx, id, flags.asJSON)
	case flags.kill:
		return a.client().CloseTerminal(ctx, id, flags.options.Name)
	}
	keys, err := parseKeys(flags.detachKeys)
	if err != nil {
		return usageError{cmd, err}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if _, ok := tty.File(a.Stdin); ok {
		flags.options.Size = a.windowSize()
	}
	t, err := a.client().OpenTerminal(ctx, id, flags.options)
	if err != nil {
		return err
	}
	defer t.Close()
	return a.look(ctx, t, keys)
}

// look ties a terminal to the one here until its program ends or the user
// leaves.
func (a *app) look(ctx context.Context, t *client.Terminal, detach []byte) error {
	restore := func() {}
	if f, ok := tty.File(a.Stdin); ok {
		var err error
		if restore, err = a.rawMode(ctx, f, t.Resize); err != nil {
			return err
		}
	}
	left := make(chan struct{})
	ended := make(chan struct{})
	var failed error // why the output broke off; read after ended
	go a.typeInto(t, detach, left)
	go func() {
		defer close(ended)
		_, failed = io.Copy(a.Stdout, t)
	}()
	select {
	case <-left:
		// Off the list of viewers before anybody is told.
		_ = t.Close() // it never fails
		<-ended
		restore()
		fmt.Fprint(a.Stdout, "\r\n")
		a.note("left terminal %s of %s, which goes on", t.Name, t.Box)
		return nil
	case <-ended:
		restore()
		if failed != nil {
			return failed
		}
	}
	x := t.Exit()
	status := client.ExecDone
	if x.Reason != "exited" {
		status = client.ExecError
	}
	return a.ended(client.Exec{Status: status, ExitCode: x.ExitCode, Reason: x.Reason, Message: x.Message})
}

// typeInto hands on keys and closes left when the detach keys come.
func (a *app) typeInto(t *client.Terminal, detach []byte, left chan<- struct{}) {
	d := detacher{keys: detach}
	buf := make([]byte, 32<<10)
	for {
		n, err := a.Stdin.Read(buf)
		keys, done := d.next(buf[:n])
		// What is typed while the connection is broken is lost; the reader
		// tells when it stays so.
		_, _ = t.Write(keys)
		if done {
			close(left)
			return
		}
		if err != nil {
			return
		}
	}
}

// detacher finds a sequence of keys among others. What may be its beginning is
// held back until it is clear.
type detacher struct {
	keys []byte
	held int // how many of keys came
}

// next returns what to hand on of b, and whether the whole sequence came.
func (d *detacher) next(b []byte) (out []byte, done bool) {
	if len(d.keys) == 0 {
		return b, false
	}
	for _, c := range b {
		if c != d.keys[d.held] {
			out = append(out, d.keys[:d.held]...)
			d.held = 0
			if c != d.keys[0] {
				out = append(out, c)
				continue
			}
		}
		if d.held++; d.held == len(d.keys) {
			return out, true
		}
	}
	return out, false
}

// parseKeys reads a list like "ctrl-p,ctrl-q" or "ctrl-],d".
func parseKeys(list string) ([]byte, error) {
	if list == "" {
		return nil, nil
	}
	var keys []byte
	for _, key := range strings.Split(list, ",") {
		name, ctrl := strings.CutPrefix(strings.ToLower(key), "ctrl-")
		switch {
		case ctrl && len(name) == 1 && (name[0] >= 'a' && name[0] <= 'z' || strings.ContainsAny(name, `@[\]^_`)):
			keys = append(keys, name[0]&0x1f)
		case len(key) == 1:
			keys = append(keys, key[0])
		default:
			return nil, fmt.Errorf("%q is not a key: write them as ctrl-p,ctrl-q", key)
		}
	}
	if len(keys) > 8 {
		return nil, errors.New("8 detach keys at most")
	}
	return keys, nil
}

func (a *app) listTerminals(ctx context.Context, id string, asJSON bool) error {
	all, err := a.client().Terminals(ctx, id)
	if err != nil {
		return err
	}
	if asJSON {
		return format.JSON(a.Stdout, all)
	}
	now := time.Now()
	rows := make([][]string, len(all))
	for i, t := range all {
		rows[i] = []string{
			t.Name, cmp.Or(t.Cmd, "(shell)"), t.User, fmt.Sprintf("%d×%d", t.Cols, t.Rows), strconv.Itoa(t.Viewers), format.Age(t.CreatedAt, now),
		}
	}
	return format.Table(a.Stdout, []string{"NAME", "COMMAND", "USER", "SIZE", "VIEWERS", "OPENED"}, rows)
}
