// Package backup is what the commands about backups of the data directory do. A daemon
// that runs makes them; without one the command does, on the directory of this machine.
package backup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/backup"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Env is what the commands need.
type Env struct {
	Client  func() *client.Client
	Environ []string
	// Daemon is where a daemon answers; "" where none does on this machine.
	Daemon func(context.Context) (string, error)
	// Flags adds flags for settings of the daemon, and Settings gives those that
	// were set.
	Flags    func(*cobra.Command, func(config.Key) bool)
	Settings func(*cobra.Command) []string
}

// Backup is the command that makes one.
func (e Env) Backup() *cobra.Command {
	var without []string
	cmd := &cobra.Command{
		Use:   "backup [flags] FILE",
		Short: "write the data directory into a file, while sandboxes run",
		Long: `Writes all that the daemon keeps into FILE, or to the standard output for "-": the
database, the disks of sandboxes as they are at one instant, snapshots, the memory of
those that sleep, output, keys, and images that lie in the data directory. Sandboxes go
on meanwhile. FILE has the files and the secrets of everybody: it is written for the
user alone, and there is none unless it is whole.

The daemon makes the backup, for a token without a tenant. Where none runs, or with
--data-dir, the command makes it itself, as root, on this machine.`,
		Example: `  cubby backup /backups/cubby-$(date +%F).tar
  cubby backup - | zstd > /backups/cubby.tar.zst
  cubby backup --without images,memory small.tar`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			take, err := e.taker(cmd, without)
			if err != nil {
				return err
			}
			if args[0] == "-" {
				return take(cmd.Context(), cmd.OutOrStdout())
			}
			bytes, err := write(args[0], func(to io.Writer) error { return take(cmd.Context(), to) })
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "%s  %s\n", format.Printable(args[0]), format.Size(bytes))
			}
			return err
		},
	}
	cmd.Flags().StringSliceVar(&without, "without", nil, "what to leave out: images, memory (of sleepers and snapshots; they lose it), database (one of PostgreSQL)")
	e.Flags(cmd, settings)
	return cmd
}

// settings are those of the daemon that a backup depends on.
func settings(k config.Key) bool {
	switch k.Name {
	case "data-dir", "image-dir", "database-url", "config":
		return true
	}
	return false
}

// taker is who makes the backup.
func (e Env) taker(cmd *cobra.Command, without []string) (func(context.Context, io.Writer) error, error) {
	if !cmd.Flags().Changed("data-dir") {
		found, err := e.Daemon(cmd.Context())
		if err != nil {
			return nil, err
		}
		if found != "" {
			return func(ctx context.Context, to io.Writer) error { return e.ask(ctx, to, without) }, nil
		}
	}
	if os.Geteuid() != 0 {
		return nil, errs.E(errs.Unavailable, "no daemon answers, and only root can read the data directory").Hint("run the command as root")
	}
	cfg, err := config.Load(e.Settings(cmd), e.Environ)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(cfg.DataDir, "seal.key")); err != nil {
		return nil, errs.E(errs.NotFound, "%s is no data directory of cubby", cfg.DataDir).Hint("name it with --data-dir").Because(err)
	}
	log := telemetry.NewLogger(cmd.ErrOrStderr(), slog.LevelWarn, "text")
	return func(ctx context.Context, to io.Writer) error { return daemon.BackUp(ctx, cfg, log, to, without) }, nil
}

// ask has the daemon make it.
func (e Env) ask(ctx context.Context, to io.Writer, without []string) (err error) {
	res, err := e.Client().Send(ctx, client.Request{Method: http.MethodPost, Path: "/v1/backup", Query: url.Values{"without": without}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	err = backup.Copy(to, res.Body)
	if why := res.Trailer.Get("Cubby-Error"); err != nil && why != "" {
		return errs.E(errs.Unavailable, "the daemon broke the backup off: %s", why).Because(err)
	}
	return err
}

// write makes a file that is there only when all of it is on the disk.
func write(name string, content func(io.Writer) error) (bytes int64, err error) {
	if _, err := os.Lstat(name); err == nil {
		return 0, errs.E(errs.Conflict, "%s exists already", name).Hint("choose another name, or remove it")
	}
	partial := name + ".partial-" + strings.ToLower(rand.Text()[:8])
	f, err := os.OpenFile(partial, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(partial))
		}
	}()
	err = content(f)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		bytes, err = f.Seek(0, io.SeekCurrent)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, err
	}
	if err := unix.Renameat2(unix.AT_FDCWD, partial, unix.AT_FDCWD, name, unix.RENAME_NOREPLACE); err != nil {
		return 0, &os.LinkError{Op: "rename", Old: partial, New: name, Err: err}
	}
	return bytes, syncDir(filepath.Dir(name))
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
