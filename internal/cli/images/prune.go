package images

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/internal/cli/format"
)

func (e Env) pruneCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "prune [flags]",
		Short: "remove images without a name that no sandbox uses",
		Long: `Removes the images that lost their name to a newer build or import and that no
sandbox, running or stopped, was made from. A daemon does the same by itself, every hour.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := e.open(cmd)
			if err != nil {
				return err
			}
			freed, err := store.Sweep(cmd.Context(), nil)
			if err != nil {
				return err
			}
			if asJSON {
				return format.JSON(cmd.OutOrStdout(), map[string]int64{"freed_bytes": freed})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "freed %s\n", format.Size(freed))
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
