package images

import (
	"time"

	"github.com/spf13/cobra"
)

func (e Env) pullCommand() *cobra.Command {
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "pull [flags] REFERENCE",
		Short: "fetch an image from an OCI registry",
		Example: `  cubby image pull docker.io/library/alpine
  cubby image pull --name py ghcr.io/me/python:3.13`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := e.open(cmd)
			if err != nil {
				return err
			}
			began, bar := time.Now(), newProgress(cmd)
			img, err := store.Pull(cmd.Context(), args[0], name, bar.step)
			bar.done()
			if err != nil {
				return err
			}
			return printMade(cmd, img, asJSON, began)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the image here (default: the reference's last element)")
	jsonFlag(cmd, &asJSON)
	return cmd
}
