package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/internal/cli/format"
)

func (a *app) createCommand() *cobra.Command {
	var flags boxFlags
	var asJSON bool
	var key, restore, snapshot string
	cmd := &cobra.Command{
		Use:   "create [flags]",
		Short: "create a sandbox and print its id",
		Example: `  ID=$(cubby create)
  cubby create --id my-box --isolation container --memory 512MiB --label team=red
  cubby create --runtime python --dep pandas=2.2.3 --dep matplotlib`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := flags.options(a, cmd)
			if err != nil {
				return err
			}
			o.IdempotencyKey, o.Restore, o.Snapshot = key, restore, snapshot
			box, err := a.client().Create(cmd.Context(), o)
			if err != nil {
				return err
			}
			if asJSON {
				return format.JSON(a.Stdout, box)
			}
			a.warn(box.Warnings)
			fmt.Fprintln(a.Stdout, box.ID)
			return nil
		},
	}
	flags.register(cmd)
	cmd.Flags().StringVar(&key, "idempotency-key", "", "a repeat with the same `key` returns the same sandbox")
	cmd.Flags().StringVar(&restore, "restore", "", "begin with the files of the archive `name`")
	cmd.Flags().StringVar(&snapshot, "snapshot", "", "begin from the snapshot with this `name` or id")
	jsonFlag(cmd, &asJSON)
	return cmd
}
