package cli

import (
	"errors"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/internal/bridge"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

func (a *app) mcpCommand() *cobra.Command {
	var thread string
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "serve the Model Context Protocol on standard input and output",
		Long: `Serves MCP to the program that started it, such as Claude Desktop or Cursor: with
the tools of the daemon at CUBBY_URL and the token of CUBBY_TOKEN. Files that the
agent imports are read from this machine with your rights.

When no daemon answers on this machine, root gets one of its own: it takes the
settings of "cubby serve" from CUBBY_* variables, and ends with this command, and
its sandboxes with it unless CUBBY_ON_SHUTDOWN is keep.`,
		Example: `  claude mcp add cubby -- cubby mcp
  cubby mcp --thread my-project      sessions of their own for a project`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if thread == "" {
				thread = a.mcpThread()
			}
			d := &ownDaemon{app: a}
			err := bridge.Run(cmd.Context(), bridge.Config{
				Daemon: d.find, Token: a.getenv("CUBBY_TOKEN"), Thread: thread, Stdin: a.Stdin, Stdout: a.Stdout,
				Log: telemetry.NewLogger(a.Stderr, slog.LevelWarn, "text"),
			})
			return errors.Join(err, d.close())
		},
	}
	cmd.Flags().StringVar(&thread, "thread", "", "the conversation that sessions belong to (default: one of this user, kept in the XDG state directory)")
	return cmd
}
