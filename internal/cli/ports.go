package cli

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/internal/cli/format"
)

func (a *app) portsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ports ID",
		Short: "list the ports of a sandbox that something listens on, and the declared ones",
		Long: `Lists the TCP ports of a sandbox that a program listens on, with the program's
name, and the ports that were declared with --port. It wakes nothing: of a sandbox
that does not run it lists the declared ports.`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ports, err := a.client().Ports(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return format.JSON(a.Stdout, map[string]any{"ports": ports})
			}
			rows := make([][]string, len(ports))
			for i, p := range ports {
				program, declared := p.Program, ""
				if !p.Listening {
					program = "(nothing listens)"
				}
				if p.Declared {
					declared = "declared"
				}
				rows[i] = []string{strconv.Itoa(p.Port), program, declared}
			}
			return format.Table(a.Stdout, []string{"PORT", "PROGRAM", ""}, rows)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
