package tasks

import (
	"context"
	"fmt"
	"os"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/task"
)

// restore brings the files of the directory back to a checkpoint and returns the
// paths of those that it wrote or removed. Files that no checkpoint has, as
// ignored ones, stay.
func (c *checkpoints) restore(ctx context.Context, commit string) ([]string, error) {
	if !objectName(commit) {
		return nil, errs.E(errs.Invalid, "%.60q is not a checkpoint", commit)
	}
	if _, err := os.Stat(c.dir); err != nil {
		return nil, errs.E(errs.NotFound, "there is no checkpoint of this directory")
	}
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	if _, err := c.run(ctx, nil, "cat-file", "-e", commit+"^{commit}"); err != nil {
		return nil, errs.E(errs.NotFound, "there is no checkpoint %s", commit).Because(err)
	}
	now, err := c.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	diffs, err := c.changes(ctx, now.tree, commit)
	if err != nil {
		return nil, err
	}
	if len(diffs) > 0 {
		if _, err := c.run(ctx, nil, "read-tree", "--reset", "-u", commit); err != nil {
			return nil, err
		}
	}
	names, size := make([]string, 0, len(diffs)), 0
	for _, d := range diffs {
		name := printable(d.Path)
		if size += len(escaped(name)) + 3; size > maxText {
			break
		}
		names = append(names, name)
	}
	return names, nil
}

// objectName reports whether s is a full name of an object of git.
func objectName(s string) bool {
	if len(s) != 40 && len(s) != 64 {
		return false
	}
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Restore is the main function of the verb [task.RestoreVerb]: it brings the files
// of a directory back to a checkpoint, prints one record, and returns the exit
// status.
func Restore(args []string) int {
	files, err := restoreFrom(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	out := newRecorder(os.Stdout, newRedactor(nil, nil), 0)
	out.record(task.RestoredType, &task.Restored{Files: files})
	return 0
}

func restoreFrom(args []string) ([]string, error) {
	if len(args) != 2 {
		return nil, errs.E(errs.Invalid, "a directory and a checkpoint are wanted")
	}
	kids, err := newChildren()
	if err != nil {
		return nil, err
	}
	c, err := openCheckpoints(kids, os.Environ(), home(), args[0])
	if err != nil {
		return nil, err
	}
	return c.restore(context.Background(), args[1])
}
