package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/cubbyhq/cubby/internal/backup"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/errs"
)

// dirs is where things are kept below the data directory.
type dirs struct {
	data, database, sealKey, journals, agent, disks, state, runtimes, images, threads string
}

// layout makes the directories. They are the daemon's alone: they hold the
// files of sandboxes and the secrets of their channels.
func layout(cfg config.Config) (dirs, error) {
	data, err := realDir(cfg.DataDir)
	if err != nil {
		return dirs{}, err
	}
	if _, err := os.Lstat(filepath.Join(data, backup.Unfinished)); err == nil {
		return dirs{}, errs.E(errs.Conflict, "a restore into %s was cut off, or goes on", data).Hint("if none goes on, empty the directory and restore again")
	}
	images, err := filepath.Abs(cfg.Images())
	if err != nil {
		return dirs{}, err
	}
	// As image.Open has it, which makes it too and says what is wrong.
	if os.MkdirAll(images, 0o755) == nil {
		if real, err := filepath.EvalSymlinks(images); err == nil {
			images = real
		}
	}
	d := dirs{
		data: data, database: filepath.Join(data, "cubby.db"), sealKey: filepath.Join(data, "seal.key"),
		journals: filepath.Join(data, "journals"), agent: filepath.Join(data, "agent"),
		disks: filepath.Join(data, "disks"), state: filepath.Join(data, "run", "oci"),
		runtimes: filepath.Join(data, "runtimes"), images: images, threads: filepath.Join(data, "threads"),
	}
	for _, dir := range []string{data, d.journals, d.disks, d.state, d.runtimes} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return dirs{}, errs.E(errs.Unavailable, "cannot make the data directory: %v", err).
				Hint("run as root, or choose a directory with --data-dir")
		}
	}
	// One that was made by hand or by a package may be open to others.
	if err := os.Chmod(data, 0o700); err != nil { //nolint:gosec // a directory needs its x bit
		return dirs{}, errs.E(errs.Unavailable, "cannot close the data directory to others: %v", err)
	}
	return d, nil
}

// realDir makes a directory and returns its path without symbolic links: the
// runtimes refuse paths that lead through one, and a sandbox's files shall stay
// where they are when the link is changed.
func realDir(dir string) (string, error) {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return "", errs.E(errs.Unavailable, "cannot make the data directory: %v", err).
			Hint("run as root, or choose a directory with --data-dir")
	}
	return dir, nil
}

// lockPatience is how long a daemon waits for one that was killed a moment ago:
// a process that it was about to start has its open files until it is another
// program.
const lockPatience = 5 * time.Second

// lockDir takes the lock of a data directory, which holds until it is closed or
// the process ends, however it ends. Conflict when another daemon has it.
func lockDir(dir string) (*flock.Flock, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	lock := flock.New(filepath.Join(dir, "lock"))
	switch _, err := lock.TryLockContext(ctx, 20*time.Millisecond); {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, errs.E(errs.Conflict, "another daemon uses %s", dir).Hint("stop it, or choose another directory with --data-dir")
	case err != nil:
		return nil, errs.E(errs.Unavailable, "cannot lock the data directory: %v", err)
	}
	return lock, nil
}
