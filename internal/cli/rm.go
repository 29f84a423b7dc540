package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/values"
)

func (a *app) rmCommand() *cobra.Command {
	var all, purge, archive, force, asJSON bool
	var labels []string
	cmd := &cobra.Command{
		Use:     "rm [flags] ID…",
		Aliases: []string{"destroy"},
		Short:   "destroy sandboxes and everything in them",
		Example: `  cubby rm my-box
  cubby rm --label team=red
  cubby rm --archive my-box       then: cubby create --restore NAME
  cubby rm --all`,
		Args: func(_ *cobra.Command, ids []string) error {
			if selects := all || len(labels) > 0; selects == (len(ids) > 0) {
				return errors.New("give ids, or --all, or --label")
			}
			return nil
		},
		ValidArgsFunction: a.completeIDs(-1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			c := a.client()
			if len(ids) == 0 {
				o := client.ListOptions{}
				var err error
				if o.Labels, err = values.Pairs("label", labels); err != nil {
					return usageError{cmd, err}
				}
				for box, err := range c.List(cmd.Context(), o) {
					if err != nil {
						return err
					}
					ids = append(ids, box.ID)
				}
			}
			return a.eachID(ids, asJSON, func(id string) error {
				var err error
				switch {
				case purge:
					_, err = c.Purge(cmd.Context(), id)
				case archive:
					var made client.Archive
					if made, err = c.DestroyArchived(cmd.Context(), id); err == nil {
						fmt.Fprintf(a.Stderr, "archived as %s\n", made.Name)
					}
				default:
					err = c.Destroy(cmd.Context(), id)
				}
				if force && errors.Is(err, client.NotFound) {
					return nil
				}
				return err
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "every sandbox")
	f.StringArrayVarP(&labels, "label", "l", nil, "every sandbox with the label `KEY=VALUE`; repeatable")
	f.BoolVar(&purge, "purge", false, "also a disk that was kept by an earlier delete")
	f.BoolVar(&archive, "archive", false, "put the files into the daemon's archive storage first")
	cmd.MarkFlagsMutuallyExclusive("purge", "archive")
	f.BoolVarP(&force, "force", "f", false, "one that is gone is not an error")
	jsonFlag(cmd, &asJSON)
	return cmd
}
