package cli

import (
	"errors"

	"github.com/spf13/cobra"
)

func (a *app) benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "bench [flags]", Short: "measure beside the floor", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return errors.New("not yet") },
	}
	return cmd
}
