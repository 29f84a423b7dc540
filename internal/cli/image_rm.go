package cli

import "github.com/spf13/cobra"

func (a *app) imageRmCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "rm [flags] NAME…",
		Short: "remove images that no sandbox uses",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			store, err := a.images(cmd)
			if err != nil {
				return err
			}
			return a.eachID(names, asJSON, func(name string) error { return store.Remove(cmd.Context(), name, nil) })
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
