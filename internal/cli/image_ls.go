package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/internal/image"
)

func (a *app) imageLsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls [flags]",
		Short: "list images",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := a.images(cmd)
			if err != nil {
				return err
			}
			list, err := store.List(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.Stdout, append([]image.Image{}, list...))
			}
			if len(list) == 0 {
				a.note("no images; `cubby image build base` makes the default one")
				return nil
			}
			now := time.Now()
			rows := make([][]string, len(list))
			for i, img := range list {
				name := orElse(img.Name, "-")
				switch {
				case img.Damaged:
					name += " (damaged)"
				case img.Outdated:
					name += " (outdated)"
				}
				rows[i] = []string{name, shortDigest(img.Digest), size(img.Size), age(img.CreatedAt, now), img.Source}
			}
			if err := table(a.Stdout, []string{"NAME", "DIGEST", "SIZE", "CREATED", "SOURCE"}, rows); err != nil {
				return err
			}
			for _, img := range list {
				if img.Outdated && img.Name != "" && !img.Damaged {
					a.note("%s is older than its recipe: cubby image build %s", img.Name, img.Name)
				}
			}
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
