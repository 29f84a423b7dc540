package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/cp"
	"github.com/cubbyhq/cubby/internal/cli/format"
)

func (a *app) exportCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "export [flags] ID [PATH...]",
		Short: "give out files of a sandbox",
		Long: `Paths of /workspace, files or directories, are given out: they can be downloaded
at the URLs that are printed, and imported by the other sandboxes of the thread,
while the sandbox is there. Without a path, what is given out is listed.`,
		Example: `  cubby export my-box output.csv results/
  cubby import other-box my-box:output.csv`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			files := a.client().Files(args[0])
			if len(args) == 1 {
				list, err := files.Exports(cmd.Context())
				if err != nil {
					return err
				}
				return a.printExports(list, asJSON)
			}
			results, err := files.Export(cmd.Context(), args[1:]...)
			if err != nil {
				return err
			}
			var good []client.Exported
			var failed []error
			for _, f := range results {
				if f.Success {
					good = append(good, f)
				} else {
					failed = append(failed, fmt.Errorf("%s: %s", format.Printable(f.Path), format.Printable(f.Error)))
				}
			}
			if asJSON {
				good = results
			}
			return errors.Join(append([]error{a.printExports(good, asJSON)}, failed...)...)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) printExports(files []client.Exported, asJSON bool) error {
	if asJSON {
		return format.JSON(a.Stdout, append([]client.Exported{}, files...))
	}
	rows := make([][]string, len(files))
	for i, f := range files {
		rows[i] = []string{f.Path, format.Size(f.Size), f.DownloadURL}
	}
	return format.Table(a.Stdout, nil, rows)
}

func (a *app) importCommand() *cobra.Command {
	var to string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "import [flags] ID SOURCE...",
		Short: "bring files of other sandboxes, or of the daemon's host, into a sandbox",
		Long: `A source is OTHER:PATH, which the sandbox OTHER has exported, or a path of the host
that the daemon runs on, below one of its import-allowed-dirs. Files from here go
in with "cubby cp". They come into /workspace under their own names, or to the
place that --to names; one that ends with "/" is a directory to put files in.`,
		Example: `  cubby import my-box other-box:results/output.csv
  cubby import my-box /srv/data/set.csv --to data/`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			imports := make([]client.Import, len(args)-1)
			for i, source := range args[1:] {
				imports[i] = client.Import{Source: source, Destination: to}
				if from := cp.ParsePlace(source); from.Box != "" {
					var err error
					if from.Box, err = a.resolve(cmd.Context(), from.Box, false); err != nil {
						return err
					}
					imports[i] = client.Import{SessionID: from.Box, Path: from.Path, Destination: to}
				}
			}
			results, err := a.client().Files(args[0]).Import(cmd.Context(), imports...)
			if err != nil {
				return err
			}
			if asJSON {
				if err := format.JSON(a.Stdout, results); err != nil {
					return err
				}
			}
			var failed []error
			var rows [][]string
			for _, f := range results {
				if f.Success {
					rows = append(rows, []string{f.Destination, format.Size(f.Size)})
				} else {
					failed = append(failed, fmt.Errorf("%s: %s", format.Printable(f.Source), format.Printable(f.Error)))
				}
			}
			if !asJSON {
				failed = append(failed, format.Table(a.Stdout, nil, rows))
			}
			return errors.Join(failed...)
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "`path` in the sandbox, relative to /workspace")
	jsonFlag(cmd, &asJSON)
	return cmd
}
