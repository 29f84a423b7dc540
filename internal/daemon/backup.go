package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/cubbyhq/cubby/internal/backup/take"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/seal"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// openBackups prepares backups of the data directory.
func (d *Daemon) openBackups(dirs dirs, key *seal.Key) (err error) {
	d.backups, err = take.New(take.Config{
		Server: d.cfg.DatabaseURL != "",
		Dirs:   take.Dirs{Data: dirs.data, State: dirs.state, Images: dirs.images},
		Store:  d.store, Version: telemetry.Version, Now: time.Now,
		Open: func(ctx context.Context, path string) (*store.Store, error) {
			return store.Open(ctx, store.Config{Path: path, Seal: key, Now: time.Now, Log: d.log})
		},
		Keep: d.disks.Keep, Hold: d.core.Sandboxes().Hold,
	})
	return err
}

// BackUp writes a backup of a data directory that no daemon uses. Its sandboxes may run.
func BackUp(ctx context.Context, cfg config.Config, log *slog.Logger, to io.Writer, without []string) (err error) {
	// It is opened as by a daemon, and serves nobody.
	cfg.Listen, cfg.GRPCListen, cfg.PreviewListen = "127.0.0.1:0", "", "off"
	d, err := New(ctx, cfg, WithLog(log))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	return d.backups.Alone().Backup(ctx, to, without)
}
