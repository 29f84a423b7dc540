package cli

import (
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/internal/bridge"
	"github.com/cubbyhq/cubby/internal/cli/localdaemon"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// What --tools may be.
const (
	allTools = "all"
	sixTools = "six"
)

// dataDirs are where a daemon on this machine keeps what it has.
func (a *app) dataDirs() []string {
	var dirs []string
	for _, environ := range [][]string{nil, a.Environ} {
		if c, err := config.Load(nil, environ); err == nil {
			dirs = append(dirs, c.DataDir, c.Images())
		}
	}
	return dirs
}

// daemonURL is where the daemon is looked for: where the user says, or where one
// with the user's settings would listen.
func (a *app) daemonURL() string {
	if listen := a.getenv("CUBBY_LISTEN"); listen != "" && a.url == "" && a.getenv("CUBBY_URL") == "" {
		return "http://" + listen
	}
	return a.client().URL()
}

func (a *app) mcpCommand() *cobra.Command {
	var thread, tools string
	var dirs []string
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "serve the Model Context Protocol on standard input and output",
		Long: `Serves MCP to the program that started it, such as Claude Desktop or Cursor: with
the tools of the daemon at CUBBY_URL and the token of CUBBY_TOKEN.

The agent may import files of this machine that are below --import-dir, the roots
that the program names, or the directory where it starts this command, unless that
is your home directory or one above it. No link is followed out of these.

When no daemon answers on this machine, root gets one of its own: it takes the
settings of "cubby serve" from CUBBY_* variables, and ends with this command, and
its sandboxes with it unless CUBBY_ON_SHUTDOWN is keep.`,
		Example: `  claude mcp add cubby -- cubby mcp
  cubby mcp --thread my-project      sessions of their own for a project
  cubby mcp --import-dir ~/data      with files of yours that the agent may import`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if thread == "" {
				thread = a.mcpThread()
			}
			if tools != allTools && tools != sixTools {
				return errs.E(errs.Invalid, "--tools is %s or %s, not %q", allTools, sixTools, tools)
			}
			d := &localdaemon.Daemon{URL: a.daemonURL(), Environ: a.Environ, Log: a.Stderr}
			if a.getenv("CUBBY_ON_SHUTDOWN") == "" {
				d.Flags = []string{"--on-shutdown=" + string(config.Destroy)} // nobody would look after the sandboxes
			}
			err := bridge.Run(cmd.Context(), bridge.Config{
				Daemon: d.Find, Token: a.getenv("CUBBY_TOKEN"), Thread: thread, SixTools: tools == sixTools, Stdin: a.Stdin, Stdout: a.Stdout,
				ImportDirs: dirs, NeverImport: a.dataDirs(),
				Log: telemetry.NewLogger(a.Stderr, slog.LevelWarn, "text"),
			})
			return errors.Join(err, d.Close())
		},
	}
	cmd.Flags().StringArrayVar(&dirs, "import-dir", nil, "a directory whose files the agent may import; may be repeated")
	cmd.Flags().StringVar(&tools, "tools", allTools, "all, or six: only those of sandbox-agent")
	cmd.Flags().StringVar(&thread, "thread", "", "the conversation that sessions belong to (default: one of this user, kept in the XDG state directory)")
	return cmd
}
