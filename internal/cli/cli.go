// Package cli is the cubby command: it reads flags, calls the SDK (package
// client), and prints for people or, with --json, for programs. It holds no
// behaviour of the product: what a command can do, the API can do. Only serve
// (the daemon), image (the image directory) and doctor (both) reach further.
//
// A command never exits the process and reads nothing of its surroundings but
// its [Env], so that tests run commands as users do.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/backup"
	"github.com/cubbyhq/cubby/internal/cli/chat"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/cli/images"
	"github.com/cubbyhq/cubby/internal/cli/localdaemon"
	"github.com/cubbyhq/cubby/internal/cli/secrets"
	"github.com/cubbyhq/cubby/internal/cli/services"
	"github.com/cubbyhq/cubby/internal/cli/settings"
	"github.com/cubbyhq/cubby/internal/cli/tasks"
)

// Env is all that commands see of their surroundings.
type Env struct {
	Args    []string // without the program's name
	Environ []string // as os.Environ
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	// Signals brings SIGINT and SIGTERM. Most commands end on the first one;
	// those that have a command running in a sandbox hand it on. Nil: none.
	Signals <-chan os.Signal
}

// Main runs the command line and returns the exit code of the process.
func Main(ctx context.Context, env Env) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := &app{Env: env}
	a.relay(ctx, cancel)
	root := a.root()
	root.SetArgs(env.Args)
	err := root.ExecuteContext(ctx)
	return a.exit(err)
}

// app is one run of the command line.
type app struct {
	Env
	url string // --url

	mu       sync.Mutex
	onSignal func(os.Signal) // nil: the default; guarded by mu
	signaled os.Signal       // the last signal that the default saw; guarded by mu
	losses   map[string]bool // what was noted of them; guarded by mu
}

// relay brings signals to whoever wants them: by default the first one ends
// ctx.
func (a *app) relay(ctx context.Context, cancel context.CancelFunc) {
	if a.Signals == nil {
		return
	}
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case sig := <-a.Signals:
				a.mu.Lock()
				handle := a.onSignal
				if handle == nil {
					a.signaled = sig
				}
				a.mu.Unlock()
				if handle == nil {
					cancel()
					return
				}
				handle(sig)
			}
		}
	}()
}

// takeSignals makes handle see all signals until the returned func is called.
func (a *app) takeSignals(handle func(os.Signal)) (giveBack func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.onSignal
	a.onSignal = handle
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.onSignal = before
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "cubby",
		Short: "sandboxes for AI agents",
		Long: `Cubby gives every AI agent its own computer: an isolated Linux sandbox with a
shell, files and a controlled network, on one machine of yours.

The daemon is started with "cubby serve". The other commands find it at CUBBY_URL
(default ` + client.DefaultURL + `) and authenticate with CUBBY_TOKEN.`,
		Example: `  cubby run -- python3 -c 'print(1+1)'    create, run, destroy
  ID=$(cubby create)                      a sandbox that stays
  cubby shell $ID                         a terminal in it
  cubby cp data.csv $ID:/workspace/       files in and out
  cubby doctor                            what is missing on this machine`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Args:              cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{cmd, likelyFlag(cmd, err)} })
	root.PersistentFlags().StringVar(&a.url, "url", "", "the daemon's `URL` (default $CUBBY_URL, else "+client.DefaultURL+")")
	root.SetHelpCommand(helpCommand(root))
	root.SetHelpCommandGroupID("other")

	const sandboxes, machine, other = "sandboxes", "machine", "other"
	root.AddGroup(
		&cobra.Group{ID: sandboxes, Title: "Sandboxes:"},
		&cobra.Group{ID: machine, Title: "The machine:"},
		&cobra.Group{ID: other, Title: "Other:"},
	)
	add := func(group string, cmds ...*cobra.Command) {
		for _, cmd := range cmds {
			cmd.GroupID = group
			root.AddCommand(cmd)
		}
	}
	add(sandboxes, a.runCommand(), a.createCommand(), a.execCommand(), a.shellCommand(), a.terminalCommand(), a.chatCommand(), a.codeCommand(), a.kernelsCommand(), a.taskCommand(), a.cpCommand(), a.exportCommand(), a.importCommand(), a.installCommand(), a.gitCommand(),
		a.lsCommand(), a.getCommand(), a.logsCommand(), a.eventsCommand(), a.stopCommand(), a.startCommand(), a.sleepCommand(), a.wakeCommand(), a.keepaliveCommand(), a.egressCommand(), a.servicesCommand(), a.portsCommand(), a.urlCommand(), a.portForwardCommand(), a.forkCommand(), a.snapshotCommand(), a.rollbackCommand(), a.tenantsCommand(), secrets.Command(a.client), settings.Command(a.client), a.rmCommand())
	add(machine, a.serveCommand(), a.egressProxyCommand(), a.mcpCommand(), images.Command(a.imageEnv()), a.backupEnv().Backup(), a.backupEnv().Restore(), a.doctorCommand(), a.benchCommand())
	add(other, a.versionCommand(), a.completionCommand())
	knownCommands(root)
	wrapArgs(root)
	a.resolveIDs(root)
	return root
}

func (a *app) servicesCommand() *cobra.Command {
	return services.Command(services.Env{
		Client: a.client, Complete: a.completeIDs(1), Log: a.printLog,
		Usage: func(cmd *cobra.Command, err error) error { return usageError{cmd, err} },
	})
}

func (a *app) imageEnv() images.Env {
	return images.Env{
		Client: a.client, Getenv: a.getenv, Environ: a.Environ, URL: func() string { return a.url }, DaemonURL: a.daemonURL,
		Flags: configFlags, Settings: configArgs, Each: a.eachID,
		Usage: func(cmd *cobra.Command, err error) error { return usageError{cmd, err} },
	}
}

func (a *app) backupEnv() backup.Env {
	return backup.Env{
		Client: a.client, Environ: a.Environ, Flags: configFlags, Settings: configArgs,
		Daemon: func(ctx context.Context) (string, error) { return localdaemon.Answering(ctx, a.daemonURL()) },
	}
}

func (a *app) chatCommand() *cobra.Command {
	return chat.Command(chat.Env{
		Client: a.client, Signals: a.takeSignals, Lookup: a.lookupEnv,
		Usage: func(cmd *cobra.Command, err error) error { return usageError{cmd, err} },
		Exit:  func(code int, err error) error { return &codeError{code, err} },
	})
}

func (a *app) taskCommand() *cobra.Command {
	return tasks.Command(tasks.Env{
		Client: a.client, Complete: a.completeIDs(1), Signals: a.takeSignals, Lookup: a.lookupEnv,
		Usage: func(cmd *cobra.Command, err error) error { return usageError{cmd, err} },
		Exit:  func(code int, err error) error { return &codeError{code, err} }, Own: own, OwnExit: ownExit,
		Columns: func() int { return a.windowSize().Cols },
	})
}

// wrapArgs turns complaints about arguments into usage errors, everywhere.
func wrapArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usageError{cmd, err}
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		wrapArgs(sub)
	}
}

// client returns the SDK's client for the daemon that the user means.
func (a *app) client() *client.Client {
	base := a.url
	if base == "" {
		base = a.getenv("CUBBY_URL")
	}
	return client.New(base, client.WithToken(a.getenv("CUBBY_TOKEN")), client.WithRestoreNotice(a.noteLoss))
}

// noteLoss notes once what a sandbox has lost that a command woke, whichever it is. Not
// every path names the sandbox.
func (a *app) noteLoss(id, lost string) {
	if id != "" {
		lost = id + ": " + lost
	}
	a.mu.Lock()
	told := a.losses[lost]
	if a.losses == nil {
		a.losses = map[string]bool{}
	}
	a.losses[lost] = true
	a.mu.Unlock()
	if !told {
		a.note("%s", lost)
	}
}

// getenv is a variable of the environment, "" when it is not set.
func (a *app) getenv(name string) string {
	v, _ := a.lookupEnv(name)
	return v
}

// note prints a line for people beside the output.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.Stderr, "cubby: "+format+"\n", args...)
}

// eachID runs act for every id and goes on after errors, so that one sandbox
// that is gone does not save the others. The ids that went well are printed.
func (a *app) eachID(ids []string, asJSON bool, act func(id string) error) error {
	type outcome struct {
		ID    string `json:"id"`
		Error string `json:"error,omitempty"`
	}
	outcomes := []outcome{}
	var failed []error
	for _, id := range ids {
		err := act(id)
		switch {
		case err != nil:
			failed = append(failed, fmt.Errorf("%s: %w", id, err))
			outcomes = append(outcomes, outcome{id, err.Error()})
		case asJSON:
			outcomes = append(outcomes, outcome{ID: id})
		default:
			fmt.Fprintln(a.Stdout, id)
		}
	}
	if asJSON {
		if err := format.JSON(a.Stdout, outcomes); err != nil {
			return err
		}
	}
	if len(failed) == 1 {
		return failed[0]
	}
	return errors.Join(failed...)
}

// jsonFlag adds --json.
func jsonFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "json", false, "print JSON")
}
