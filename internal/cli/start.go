package cli

import "github.com/spf13/cobra"

func (a *app) startCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "start [flags] ID…",
		Short:             "start stopped sandboxes",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeIDs(-1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			c := a.client()
			return a.eachID(ids, asJSON, func(id string) error {
				_, err := c.Start(cmd.Context(), id)
				return err
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
