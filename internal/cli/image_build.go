package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/internal/image"
)

func (a *app) imageBuildCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "build [flags] RECIPE",
		Short: "build an image from Debian packages",
		Long: `Builds one of cubby's own images with mmdebstrap, as root. The packages are kept, so
that a second build needs no network. The recipes: base has Python and Node, r has R,
debian no language but C.`,
		Example:   "  cubby image build base\n  cubby image build r",
		Args:      cobra.ExactArgs(1),
		ValidArgs: image.Recipes(),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := a.images(cmd)
			if err != nil {
				return err
			}
			began, bar := time.Now(), a.progress()
			img, err := store.Build(cmd.Context(), args[0], bar.step)
			bar.done()
			if err != nil {
				return err
			}
			return a.printMade(img, asJSON, began)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
