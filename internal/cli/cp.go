package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/internal/cli/cp"
)

func (a *app) cpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cp SOURCE… TARGET",
		Short: "copy files and directories in and out of sandboxes, and between them",
		Long: `ID:path is in a sandbox, another path is here; "-" is the input or the output.
Paths in a sandbox are relative to /workspace. As with cp, a target that is a
directory gets the source in it, and "dir/." means what is in dir; several sources
need such a target. A directory that is copied to "-" comes as tar.`,
		Example: `  cubby cp data.csv my-box:/workspace/
  cubby cp *.csv project my-box:
  cubby cp my-box:results other-box:/home/sandbox ./out
  cubby cp my-box:results other-box:
  cubby cp my-box:plot.png - | display`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: a.completePlaces,
		RunE: func(cmd *cobra.Command, args []string) error {
			places := make([]cp.Place, len(args))
			for i, arg := range args {
				places[i] = cp.ParsePlace(arg)
				box, err := a.resolve(cmd.Context(), places[i].Box, false)
				if err != nil {
					return err
				}
				places[i].Box = box
			}
			c := cp.Copier{Client: a.client(), Stdin: a.Stdin, Stdout: a.Stdout}
			last := len(places) - 1
			sources, to := places[:last], places[last]
			if len(sources) > 1 {
				if err := c.NeedDirectory(cmd.Context(), to); err != nil {
					return err
				}
			}
			for _, from := range sources {
				err := c.Copy(cmd.Context(), from, to)
				if errors.Is(err, cp.ErrHere) {
					return usageError{cmd, err}
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}
