package images

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/image"
)

func (e Env) lsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls [flags]",
		Short: "list images",
		Long: `Lists the images of the daemon at CUBBY_URL, which may be on another machine, or of
an image directory of this one: with --image-dir or --data-dir, and when no daemon
answers at the default address.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if there, err := e.OfDaemon(cmd.Context(), cmd); err != nil || there != nil {
				return printImages(cmd, there, asJSON, err)
			}
			store, err := e.open(cmd)
			if err != nil {
				return err
			}
			list, err := store.List(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return format.JSON(cmd.OutOrStdout(), append([]image.Image{}, list...))
			}
			if len(list) == 0 {
				note(cmd, "no images; `cubby image build base` makes the default one")
				return nil
			}
			shown := make([]client.Image, len(list))
			for i, img := range list {
				shown[i] = client.Image{
					Name: img.Name, Digest: img.Digest, Size: img.Size, CreatedAt: img.CreatedAt, Source: img.Source,
					Outdated: img.Outdated, Damaged: img.Damaged,
				}
			}
			return printTable(cmd, shown, "")
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// OfDaemon asks the daemon for its images. It is nil where this machine's
// directory is meant: one was named, or no daemon was and none answers.
func (e Env) OfDaemon(ctx context.Context, cmd *cobra.Command) ([]client.Image, error) {
	for _, name := range []string{"image-dir", "data-dir"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			return nil, nil
		}
	}
	named := e.URL() != "" || e.Getenv("CUBBY_URL") != ""
	if !named && (e.Getenv("CUBBY_IMAGE_DIR") != "" || e.Getenv("CUBBY_DATA_DIR") != "") {
		return nil, nil
	}
	list, err := e.Client().Images(ctx)
	if errors.Is(err, client.Unreachable) && !named {
		return nil, nil
	}
	if list == nil && err == nil {
		list = []client.Image{}
	}
	return list, err
}

// printImages prints what a daemon has.
func printImages(cmd *cobra.Command, list []client.Image, asJSON bool, err error) error {
	switch {
	case err != nil:
		return err
	case asJSON:
		return format.JSON(cmd.OutOrStdout(), list)
	case len(list) == 0:
		note(cmd, "the daemon has no images; `cubby image build base` on its machine makes the default one")
		return nil
	}
	return printTable(cmd, list, ", on the daemon's machine")
}

// printTable prints images, and how those that are older than their recipes are
// renewed, where.
func printTable(cmd *cobra.Command, list []client.Image, where string) error {
	now := time.Now()
	rows := make([][]string, len(list))
	for i, img := range list {
		name := cmp.Or(img.Name, "-")
		switch {
		case img.Damaged:
			name += " (damaged)"
		case img.Outdated:
			name += " (outdated)"
		}
		rows[i] = []string{name, format.Digest(img.Digest), format.Size(img.Size), format.Age(img.CreatedAt, now), img.Source}
	}
	if err := format.Table(cmd.OutOrStdout(), []string{"NAME", "DIGEST", "SIZE", "CREATED", "SOURCE"}, rows); err != nil {
		return err
	}
	for _, img := range list {
		if img.Outdated && img.Name != "" && !img.Damaged {
			note(cmd, "%s is older than its recipe: cubby image build %s%s", img.Name, img.Name, where)
		}
	}
	return nil
}
