package cli

import (
	"context"
	"errors"
	"io"
	"log"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cubbyhq/cubby/internal/collector"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon"
)

func (a *app) serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve [flags]",
		Short: "run the daemon",
		Long: `Runs the daemon until SIGINT or SIGTERM. Sandboxes go on running when it ends, and
the next one takes them over.

Every setting is a flag, a CUBBY_* variable (--data-dir is CUBBY_DATA_DIR), or a key
of the file named by --config; flags win over variables, and those over the file.`,
		Example: `  cubby serve
  cubby serve --listen 0.0.0.0:9090 --tokens me:secret --tls-cert c.pem --tls-key k.pem`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(configArgs(cmd), a.Environ)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), cfg)
		},
	}
	configFlags(cmd, func(config.Key) bool { return true })
	return cmd
}

func serve(ctx context.Context, cfg config.Config) error {
	collector.Server()
	// The daemon has a structured log. What else is printed are bytes of hostile apps,
	// which net/http prints when one of them sends more than its answer.
	log.SetOutput(io.Discard)
	d, err := daemon.New(ctx, cfg)
	if err != nil {
		return err
	}
	if err := d.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// configFlags adds flags for settings of the daemon. They only collect text:
// config has the one parser and the one list.
func configFlags(cmd *cobra.Command, want func(config.Key) bool) {
	for _, k := range append(config.Keys(), config.FileKey()) {
		if !want(k) {
			continue
		}
		f := cmd.Flags().VarPF(&configValue{key: k, text: k.Default}, k.Name, "", k.Usage)
		if k.Bool {
			f.NoOptDefVal = "true"
		}
	}
}

// configArgs gives the flags that were set in the form that config.Load takes.
func configArgs(cmd *cobra.Command) []string {
	var args []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if v, ok := f.Value.(*configValue); ok {
			args = append(args, "--"+f.Name+"="+v.text)
		}
	})
	return args
}

// configValue is the text of one setting.
type configValue struct {
	key  config.Key
	text string
}

func (v *configValue) String() string     { return v.text }
func (v *configValue) Set(s string) error { v.text = s; return nil }

func (v *configValue) Type() string {
	if v.key.Bool {
		return "bool"
	}
	return "value"
}
