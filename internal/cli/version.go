package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return format.JSON(a.Stdout, map[string]string{
					"version": telemetry.Version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
				})
			}
			fmt.Fprintf(a.Stdout, "cubby %s (%s, %s/%s)\n", telemetry.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
