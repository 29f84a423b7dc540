package cli

import (
	"time"

	"github.com/spf13/cobra"
)

func (a *app) stopCommand() *cobra.Command {
	var asJSON, force bool
	grace := time.Duration(-1)
	cmd := &cobra.Command{
		Use:               "stop [flags] ID…",
		Short:             "end sandboxes' processes and keep their files",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeIDs(-1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			c := a.client()
			return a.eachID(ids, asJSON, func(id string) error {
				stop := c.Stop
				if force {
					stop = c.StopAnyway
				}
				_, err := stop(cmd.Context(), id, grace)
				return err
			})
		},
	}
	cmd.Flags().DurationVar(&grace, "grace", grace, "`time` to end by themselves before they are killed (default: the daemon's)")
	cmd.Flags().Lookup("grace").DefValue = "0s" // shown as none
	cmd.Flags().BoolVar(&force, "force", false, "also while a task of a coding agent runs, which ends with it")
	jsonFlag(cmd, &asJSON)
	return cmd
}
