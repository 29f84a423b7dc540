package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/doctor"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/cli/tty"
	"github.com/cubbyhq/cubby/internal/config"
)

func (a *app) doctorCommand() *cobra.Command {
	var asJSON, noBoot bool
	cmd := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "check this machine, boot a sandbox of each kind, say what is missing",
		Long: `Checks what cubby needs of this machine, boots one real gVisor and one real
container sandbox from a scratch directory, and says for everything that is missing
what to type. Needs root to boot. The exit code is 1 when something is broken;
warnings are about things that only some uses need.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(configArgs(cmd), a.Environ)
			if err != nil {
				return err
			}
			o := doctor.Options{
				Config: cfg, Client: a.client(), Boot: !noBoot, Out: a.Stdout, Color: a.colors(),
				Images: func(ctx context.Context) ([]client.Image, error) { return a.imageEnv().OfDaemon(ctx, cmd) },
			}
			if asJSON {
				o.Out = io.Discard
			}
			checks, broken := doctor.Examine(cmd.Context(), o)
			if asJSON {
				if err := format.JSON(a.Stdout, checks); err != nil {
					return err
				}
			}
			return broken
		},
	}
	configFlags(cmd, func(k config.Key) bool { return k.Name == "image-dir" || k.Name == "data-dir" })
	cmd.Flags().BoolVar(&noBoot, "no-boot", false, "only look; boot nothing")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// colors reports whether the output is a terminal that wants them.
func (a *app) colors() bool {
	_, onTerminal := tty.File(a.Stdout)
	_, no := a.lookupEnv("NO_COLOR")
	return onTerminal && !no
}
