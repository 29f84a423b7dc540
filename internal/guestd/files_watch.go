package guestd

import (
	"context"
	"errors"
	"os"
	"path"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/fsnotify/fsnotify"
	"google.golang.org/protobuf/types/known/timestamppb"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/filetree"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// maxWatched bounds the directories of one recursive watch: each costs memory
// of the kernel.
const maxWatched = 8192

// Watch implements the guest service. Its first message says that changes are
// seen from now on. When changes come faster than the host takes them some are
// lost, and the operation "overflow" says so. The stream ends with NotFound
// when the watched path itself goes away.
//
// In a recursive watch a directory that appears is watched too; what was put
// into it before that is reported as created, which can repeat a report.
func (f *fileService) Watch(ctx context.Context, r *connect.Request[guestv1.WatchRequest], out *connect.ServerStream[guestv1.WatchResponse]) error {
	name, err := filetree.Clean(r.Msg.GetPath())
	if err != nil {
		return err
	}
	top, err := f.tree.Stat(ctx, name, true)
	if err != nil {
		return err
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return watchError(err, name)
	}
	defer func() { _ = w.Close() }()
	x := &watch{
		f: f, w: w, out: out, name: name, here: f.here(name), most: maxWatched,
		recursive: r.Msg.GetRecursive() && top.Type == sandbox.Directory,
	}
	if err := x.add(name); err != nil {
		return err
	}
	if x.recursive {
		if err := x.addBelow(ctx, name, false); err != nil {
			return err
		}
	}
	if err := out.Send(&guestv1.WatchResponse{Ready: true, At: timestamppb.New(f.now())}); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-w.Events:
			if !ok {
				return nil
			}
			if err := x.event(ctx, e); err != nil {
				return err
			}
		case err, ok := <-w.Errors:
			if !ok {
				return nil
			}
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return watchError(err, name)
			}
			if err := x.send(name, "overflow"); err != nil {
				return err
			}
		}
	}
}

type watch struct {
	f          *fileService
	w          *fsnotify.Watcher
	out        *connect.ServerStream[guestv1.WatchResponse]
	name, here string // the top, in the sandbox and in this process
	recursive  bool
	watched    int // at least as many directories as are watched
	most       int // of them
}

// here is the name in this process of a name in the sandbox.
func (f *fileService) here(name string) string {
	if f.cfg.MapPath == nil {
		return name
	}
	return f.cfg.MapPath(name)
}

func (f *fileService) now() time.Time {
	if f.cfg.Now == nil {
		return time.Now()
	}
	return f.cfg.Now()
}

// add watches a directory. Directories that went away do not count.
func (x *watch) add(name string) error {
	if x.watched >= x.most {
		x.watched = len(x.w.WatchList())
	}
	if x.watched++; x.watched > x.most {
		return errs.E(errs.Exhausted, "%s holds more than %d directories", x.name, x.most).
			Hint("watch a part of it, or without recursive")
	}
	return watchError(x.w.Add(x.f.here(name)), name)
}

func watchError(err error, name string) error {
	if errors.Is(err, os.ErrNotExist) {
		return errs.E(errs.NotFound, "%s: no such file or directory", name).Because(err)
	}
	return proc.Classify(err, name)
}

// addBelow watches the directories below one; with report it also reports what
// is there.
func (x *watch) addBelow(ctx context.Context, name string, report bool) error {
	for file, err := range x.f.tree.ListFiles(ctx, name, true) {
		if errors.Is(err, errs.NotFound) || errors.Is(err, errs.Invalid) {
			return nil // it vanished again
		}
		if err != nil {
			return err
		}
		if report {
			if err := x.send(file.Path, "create"); err != nil {
				return err
			}
		}
		if file.Type != sandbox.Directory {
			continue
		}
		if err := x.add(file.Path); err != nil && !errors.Is(err, errs.NotFound) {
			return err
		}
	}
	return nil
}

func (x *watch) event(ctx context.Context, e fsnotify.Event) error {
	name := path.Join(x.name, strings.TrimPrefix(strings.TrimPrefix(e.Name, x.here), "/"))
	ops := []struct {
		op   fsnotify.Op
		name string
	}{
		{fsnotify.Create, "create"},
		{fsnotify.Write, "write"},
		{fsnotify.Chmod, "chmod"},
		{fsnotify.Rename, "rename"},
		{fsnotify.Remove, "remove"},
	}
	for _, o := range ops {
		if !e.Has(o.op) {
			continue
		}
		if err := x.send(name, o.name); err != nil {
			return err
		}
	}
	if name == x.name && (e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)) {
		return errs.E(errs.NotFound, "%s: no longer there", x.name)
	}
	if !x.recursive || !e.Has(fsnotify.Create) {
		return nil
	}
	if file, err := x.f.tree.Stat(ctx, name, false); err != nil || file.Type != sandbox.Directory {
		return nil
	}
	if err := x.add(name); err != nil {
		if errors.Is(err, errs.NotFound) {
			return nil
		}
		return err
	}
	return x.addBelow(ctx, name, true)
}

func (x *watch) send(name, op string) error {
	return x.out.Send(&guestv1.WatchResponse{
		Path: strings.ToValidUTF8(name, "\uFFFD"),
		Op:   op,
		At:   timestamppb.New(x.f.now()),
	})
}
