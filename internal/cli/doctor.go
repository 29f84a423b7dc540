package cli

import (
	"errors"

	"github.com/spf13/cobra"
)

func (a *app) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor [flags]", Short: "check this machine, boot a sandbox of each kind, say what is missing", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return errors.New("not yet") },
	}
	return cmd
}
