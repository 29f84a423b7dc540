package backup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/instance"
)

// Unfinished is in a data directory while a backup is unpacked there, and after that
// only if it was cut off.
const Unfinished = ".restoring"

// Restore makes a data directory of a backup, in a directory that is not there or is
// empty. Nothing is in its place before all sums were compared. The directory is an
// instance of its own: it can be used beside the one that was backed up.
func Restore(dir string, from io.Reader) (h Header, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return h, err
	}
	exists, err := vacant(dir)
	if err != nil {
		return h, err
	}
	// On the same file system: one that is there may be a mount.
	stage := filepath.Join(dir, Unfinished)
	if exists {
		err = os.Mkdir(stage, 0o700)
	} else if err = os.MkdirAll(filepath.Dir(dir), 0o755); err == nil {
		stage, err = os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+Unfinished+"-")
	}
	if err != nil {
		return h, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(stage))
		}
	}()
	if h, err = Unpack(stage, from); err != nil {
		return h, err
	}
	if err := instance.New().Write(stage); err != nil {
		return h, err
	}
	if err := syncAll(stage); err != nil {
		return h, err
	}
	if exists {
		err = moveUp(stage, dir)
	} else {
		err = os.Rename(stage, dir)
	}
	if err == nil {
		err = syncAll(filepath.Dir(dir))
	}
	return h, err
}

// vacant refuses a directory that has something in it.
func vacant(dir string) (exists bool, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, errs.E(errs.Invalid, "cannot restore into %s: %v", dir, err)
	}
	for _, e := range entries {
		switch e.Name() {
		case "lost+found": // of a file system that is mounted there
		case Unfinished:
			return true, errs.E(errs.Conflict, "a restore into %s was cut off, or goes on", dir).Hint("if none goes on, empty the directory and restore again")
		default:
			return true, errs.E(errs.Conflict, "%s is not empty", dir).Hint("restore into a directory that is not there or is empty; to replace this one, stop its daemon and move it away")
		}
	}
	return true, nil
}

// moveUp gives a directory what was unpacked in it, the database last: without it no
// daemon takes what is there for its own.
func moveUp(stage, dir string) error {
	entries, err := os.ReadDir(stage)
	if err != nil {
		return err
	}
	const database = "cubby.db"
	var last error
	for _, e := range entries {
		if e.Name() != database {
			last = errors.Join(last, os.Rename(filepath.Join(stage, e.Name()), filepath.Join(dir, e.Name())))
		}
	}
	if last != nil {
		return last
	}
	err = os.Rename(filepath.Join(stage, database), filepath.Join(dir, database))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Remove(stage)
}

// syncAll puts all of a directory's file system onto the disk.
func syncAll(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd())))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("put the data directory onto the disk: %w", err)
	}
	return nil
}
