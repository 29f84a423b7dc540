package images

import "github.com/spf13/cobra"

func (e Env) rmCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "rm [flags] NAME…",
		Short: "remove images that no sandbox uses",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			store, err := e.open(cmd)
			if err != nil {
				return err
			}
			return e.Each(names, asJSON, func(name string) error { return store.Remove(cmd.Context(), name, nil) })
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
