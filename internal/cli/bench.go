package cli

import (
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/bench"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/cli/tty"
	"github.com/cubbyhq/cubby/internal/config"
)

func (a *app) benchCommand() *cobra.Command {
	var quick, asJSON, useDaemon bool
	var n int
	var only, isolations []string
	var name string
	cmd := &cobra.Command{
		Use:   "bench [flags]",
		Short: "measure cubby beside bare runtimes and Docker",
		Long: `Measures cubby through its API, and in the same run the floor below it: runsc, crun,
runc, and Docker where an engine answers. Prints Markdown with p50, p95, p99, the
ratio to the floor and the goals.

A daemon of its own is started on a scratch directory; --use-daemon measures the one
at CUBBY_URL instead. Needs root and an image; takes up to six minutes, with --quick
up to two and a half.`,
		Example: `  sudo cubby bench
  sudo cubby bench --quick --only create,exec`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(configArgs(cmd), a.Environ)
			if err != nil {
				return err
			}
			if os.Geteuid() != 0 {
				return errors.New("bench starts bare runtimes and a daemon: run it as root")
			}
			scratch, err := os.MkdirTemp("", "cubby-bench-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(scratch)
			program, err := os.Executable()
			if err != nil {
				return err
			}
			var remote *client.Client
			if useDaemon {
				remote = a.client()
			}
			progress := a.Stderr
			if _, ok := tty.File(a.Stderr); !ok && asJSON {
				progress = io.Discard
			}
			report, err := bench.Run(cmd.Context(), bench.Config{
				Program: program, ImageDir: cfg.Images(), Image: name, Scratch: scratch, Remote: remote,
				Isolations: isolations, Sections: only, Quick: quick, N: n, Progress: progress,
			})
			if err != nil {
				return err
			}
			if asJSON {
				return format.JSON(a.Stdout, report)
			}
			return report.Markdown(a.Stdout)
		},
	}
	configFlags(cmd, func(k config.Key) bool { return k.Name == "image-dir" || k.Name == "data-dir" })
	f := cmd.Flags()
	f.BoolVar(&quick, "quick", false, "few repetitions")
	f.BoolVar(&useDaemon, "use-daemon", false, "measure the daemon at CUBBY_URL")
	f.IntVarP(&n, "n", "n", 0, "`number` of creates (default 30, quick 5); the rest follows")
	f.StringSliceVar(&only, "only", nil, "`sections` to measure: create, exec, burst, transfer, stream, egress, preview, code, sleep, fork, pool, memory, rows")
	f.StringSliceVar(&isolations, "isolation", nil, "`walls` to measure (default gvisor,container)")
	f.StringVar(&name, "image", "base", "`image` to start from")
	complete(cmd, "only", bench.Sections()...)
	complete(cmd, "isolation", "gvisor", "container")
	jsonFlag(cmd, &asJSON)
	cmd.AddCommand(a.benchProbeCommand())
	return cmd
}

// benchProbeCommand is bench's own client, which it also runs in sandboxes.
func (a *app) benchProbeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "probe JSON", Hidden: true, Args: cobra.ExactArgs(1),
		Short: "what bench runs inside a sandbox to measure its network",
		RunE:  func(cmd *cobra.Command, args []string) error { return bench.RunProbe(cmd.Context(), args[0], a.Stdout) },
	}
}
