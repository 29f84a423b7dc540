package cli

import (
	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
)

func (a *app) sleepCommand() *cobra.Command {
	var asJSON, force bool
	cmd := &cobra.Command{
		Use:   "sleep [flags] ID…",
		Short: "put sandboxes to sleep: their memory goes to disk",
		Long: `sleep writes the memory of running sandboxes to the host's disk and frees the rest:
all that runs in them goes on after the wake. The next use wakes them, or "cubby wake".

A sandbox that is in use is refused without --force; with it commands, cells and
terminals go on after the wake. Where memory cannot be kept, as in containers, a
sandbox is stopped instead, and a note says so.`,
		Example: `  cubby sleep my-box
  cubby sleep --force my-box other-box`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeIDs(-1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			c := a.client()
			return a.eachID(ids, asJSON, func(id string) error {
				box, err := c.Sleep(cmd.Context(), id, force)
				if err == nil && box.Status != client.Sleeping {
					a.note("%s is %s: %s", id, box.Status, box.Reason)
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "also sandboxes that are in use")
	jsonFlag(cmd, &asJSON)
	return cmd
}
