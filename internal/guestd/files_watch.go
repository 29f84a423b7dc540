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
	"golang.org/x/sys/unix"
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
// In a recursive watch a directory that appears is watched too, also one that is
// renamed; what was put into it before that is reported as created, which can repeat a
// report.
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
		f: f, w: w, tell: out.Send, name: name, here: f.here(name), most: maxWatched,
		recursive: r.Msg.GetRecursive() && top.Type == sandbox.Directory,
		watched:   make(map[string]bool),
	}
	x.listen()
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
	return x.follow(ctx)
}

// follow tells of what happens, until ctx ends or the top is gone.
func (x *watch) follow(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-x.w.Events:
			if !ok {
				return nil
			}
			if err := x.event(ctx, e); err != nil {
				return err
			}
		case err := <-x.failed:
			return watchError(err, x.name)
		case <-x.lost:
			// Who is told looks at all of it, and what changes from then on has to be seen.
			if err := x.anew(ctx); err != nil {
				return err
			}
			if err := x.send(x.name, "overflow"); err != nil {
				return err
			}
		}
	}
}

type watch struct {
	f          *fileService
	w          *fsnotify.Watcher
	tell       func(*guestv1.WatchResponse) error
	name, here string // the top, in the sandbox and in this process
	recursive  bool
	watched    map[string]bool // at least the names of the directories that are watched
	most       int             // of them
	lost       chan struct{}   // a token when events were lost
	failed     chan error      // the first other error of the watcher's
}

// listen takes what the watcher says of errors, until it is closed. It says so with its
// lock held, which to watch more, to watch less and to close it wait for: whoever does
// that cannot be the one who listens.
func (x *watch) listen() {
	x.lost, x.failed = make(chan struct{}, 1), make(chan error, 1)
	go func() {
		for err := range x.w.Errors {
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				select {
				case x.lost <- struct{}{}:
				default:
				}
				continue
			}
			if errors.Is(err, unix.EINVAL) {
				continue // the end of the watch of what was gone before: its event comes yet
			}
			select {
			case x.failed <- err:
			default:
			}
		}
	}()
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

// nameOf is the name in the sandbox of what is watched here.
func (x *watch) nameOf(here string) string {
	return path.Join(x.name, strings.TrimPrefix(strings.TrimPrefix(here, x.here), "/"))
}

// add watches a directory. Directories that went away do not count.
func (x *watch) add(name string) error {
	if len(x.watched) >= x.most {
		clear(x.watched)
		for _, here := range x.w.WatchList() {
			x.watched[x.nameOf(here)] = true
		}
	}
	if x.watched[name] = true; len(x.watched) > x.most {
		return errs.E(errs.Exhausted, "%s holds more than %d directories", x.name, x.most).
			Hint("watch a part of it, or without recursive")
	}
	return watchError(x.w.Add(x.f.here(name)), name)
}

// anew watches what is there now, after events that were lost: the top may be gone,
// directories may have come and others be elsewhere.
func (x *watch) anew(ctx context.Context) error {
	if err := errors.Join(x.forget(x.name), x.add(x.name)); err != nil || !x.recursive {
		return err
	}
	return x.addBelow(ctx, x.name, false)
}

// forget ends the watch of a directory that goes by this name no more, and of those
// below it. A directory is watched by its inode: one that is renamed would go on to be
// told of by its old name, or by none.
func (x *watch) forget(name string) error {
	for dir := range x.watched {
		if dir != name && !strings.HasPrefix(dir, strings.TrimSuffix(name, "/")+"/") {
			continue
		}
		delete(x.watched, dir)
		if err := x.w.Remove(x.f.here(dir)); err != nil && !errors.Is(err, fsnotify.ErrNonExistentWatch) && !errors.Is(err, unix.EINVAL) {
			return watchError(err, dir)
		}
	}
	return nil
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
	name := x.nameOf(e.Name)
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
	if !x.recursive {
		return nil
	}
	// A new directory may have the name by now, also one that it was exchanged for.
	again := x.watched[name] && (e.Has(fsnotify.Rename) || e.Has(fsnotify.Remove))
	if again {
		if err := x.forget(name); err != nil {
			return err
		}
	}
	if !again && !e.Has(fsnotify.Create) {
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
	return x.tell(&guestv1.WatchResponse{
		Path: strings.ToValidUTF8(name, "\uFFFD"),
		Op:   op,
		At:   timestamppb.New(x.f.now()),
	})
}
