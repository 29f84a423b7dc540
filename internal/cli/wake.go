package cli

import "github.com/spf13/cobra"

func (a *app) wakeCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "wake [flags] ID…",
		Short: "wake sleeping sandboxes",
		Long: `wake runs sleeping sandboxes on, with all that ran in them, and starts stopped ones.
If the memory of one can no longer be read, it starts from its files, and a note
says what was lost.`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeIDs(-1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			c := a.client()
			return a.eachID(ids, asJSON, func(id string) error {
				box, err := c.Wake(cmd.Context(), id)
				if err == nil && box.RestoreIncomplete {
					a.noteLoss(id, box.Reason) // also of one that runs already
				}
				return err
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
