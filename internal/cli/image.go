package cli

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/image"
)

func (a *app) imageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "image",
		Aliases: []string{"images"},
		Short:   "build, pull, import, list and remove images",
		Long: `Images are the root filesystems that sandboxes start from. These commands work on
the image directory of this machine and need no daemon.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.imageLsCommand(), a.imageBuildCommand(), a.imagePullCommand(), a.imageImportCommand(), a.imageRmCommand(), a.imagePruneCommand())
	for _, sub := range cmd.Commands() {
		configFlags(sub, func(k config.Key) bool { return k.Name == "image-dir" || k.Name == "data-dir" })
	}
	return cmd
}

// images opens the image directory that the daemon would use.
func (a *app) images(cmd *cobra.Command) (*image.Store, error) {
	cfg, err := config.Load(configArgs(cmd), a.Environ)
	if err != nil {
		return nil, err
	}
	return image.Open(cfg.Images(), slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
}

// printMade tells what an image command made.
func (a *app) printMade(img image.Image, asJSON bool, began time.Time) error {
	if asJSON {
		return format.JSON(a.Stdout, img)
	}
	fmt.Fprintf(a.Stdout, "%s  %s  %s  in %s\n", img.Name, format.Digest(img.Digest), format.Size(img.Size), time.Since(began).Round(100*time.Millisecond))
	return nil
}
