package backup

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/internal/backup"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/errs"
)

// Restore is the command that makes a data directory of a backup.
func (e Env) Restore() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore [flags] FILE",
		Short: "make a data directory of a backup",
		Long: `Makes the data directory (--data-dir) of a backup, or of the standard input for "-". The
directory must not be there, or be empty. All checksums are compared before anything
is in place: a backup that is damaged, cut off or of a later format is refused and
leaves nothing.

Sandboxes that ran are stopped, as after a power cut: start them. Those that slept wake.
The directory can be used beside the one that was backed up.`,
		Example: `  cubby restore /backups/cubby-2026-11-28.tar
  cubby restore --data-dir /srv/cubby backup.tar
  zstd -d < backup.tar.zst | cubby restore -`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if os.Geteuid() != 0 {
				return errs.E(errs.Forbidden, "only root can give the files of sandboxes their owners").Hint("run the command as root")
			}
			cfg, err := config.Load(e.Settings(cmd), e.Environ)
			if err != nil {
				return err
			}
			from := cmd.InOrStdin()
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close()
				from = f
			}
			h, err := backup.Restore(cfg.DataDir, untilEnd{cmd.Context(), from})
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s  of %s, made by cubby %s\n", cfg.DataDir, h.CreatedAt.Format(time.RFC3339), h.Version)
			if len(h.Without) > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "cubby: the backup is without %s\n", strings.Join(h.Without, " and "))
			}
			return nil
		},
	}
	e.Flags(cmd, func(k config.Key) bool { return k.Name == "data-dir" || k.Name == "config" })
	return cmd
}

// untilEnd reads until a context ends.
type untilEnd struct {
	ctx  context.Context //nolint:containedctx // of the command
	from io.Reader
}

func (r untilEnd) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.from.Read(p)
}
