package guestd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
)

// newWatch watches top recursively, and most directories with it.
func newWatch(t *testing.T, top string, most int) *watch {
	t.Helper()
	w, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	x := &watch{
		f: newFileService(Config{}), w: w, name: top, here: top, recursive: true, most: most, watched: make(map[string]bool),
		tell: func(*guestv1.WatchResponse) error { return nil },
	}
	x.listen()
	if err := x.add(top); err != nil {
		t.Fatal(err)
	}
	return x
}

// awaitEvent reads events until one is of a kind and a name.
func awaitEvent(t *testing.T, w *fsnotify.Watcher, op fsnotify.Op, name string) {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case e := <-w.Events:
			if e.Has(op) && e.Name == name {
				return
			}
		case err := <-w.Errors:
			t.Fatal(err)
		case <-timeout:
			t.Fatalf("no event %v of %s", op, name)
		}
	}
}

// A watch that went on for long ended as that of too many directories, though
// most had been removed again.
func TestWatchOfDirectoriesThatComeAndGo(t *testing.T) {
	const most = 8
	top := t.TempDir()
	x := newWatch(t, top, most)
	for range 2 * most {
		dir := filepath.Join(top, "d")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := x.add(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		awaitEvent(t, x.w, fsnotify.Remove, dir)
	}
}

func TestWatchOfTooManyDirectories(t *testing.T) {
	const most = 8
	top := t.TempDir()
	x := newWatch(t, top, most)
	add := func(name string) error {
		dir := filepath.Join(top, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		return x.add(dir)
	}
	for i := range most - 1 {
		if err := add(strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := add("more"); !errors.Is(err, errs.Exhausted) {
		t.Errorf("one directory more than the bound = %v, want exhausted", err)
	}
}

// follows follows a tree, and returns what gives the next event of a name, whatever
// comes before. An event of a name that ends in "old" fails the test.
func follows(t *testing.T, top string) (next func(op, name string)) {
	t.Helper()
	x := newWatch(t, top, maxWatched)
	told := make(chan *guestv1.WatchResponse, 10_000)
	x.tell = func(m *guestv1.WatchResponse) error {
		told <- m
		return nil
	}
	if err := x.addBelow(t.Context(), top, false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- x.follow(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended: %v", err)
		}
	})
	return func(op, name string) {
		t.Helper()
		timeout := time.After(time.Minute)
		for {
			select {
			case m := <-told:
				if strings.HasSuffix(m.GetPath(), "old") {
					t.Errorf("%s of %s", m.GetOp(), m.GetPath())
				}
				if m.GetOp() == op && m.GetPath() == name {
					return
				}
			case <-timeout:
				t.Fatalf("no %s of %s", op, name)
			}
		}
	}
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A directory that was renamed was not watched any more, or those below it were told of
// by their old names.
func TestWatchOfADirectoryThatIsRenamed(t *testing.T) {
	top := t.TempDir()
	at := func(name ...string) string { return filepath.Join(append([]string{top}, name...)...) }
	mustDo(t, os.MkdirAll(at("0", "sub", "deep"), 0o700))
	mustDo(t, os.Mkdir(at("beside"), 0o700))
	next := follows(t, top)
	for i := range 100 {
		from, to := strconv.Itoa(i), strconv.Itoa(i+1)
		mustDo(t, os.Rename(at(from), at(to)))
		next("create", at(to, "sub", "deep"))
		for _, dir := range []string{"", "sub", "sub/deep"} {
			file := at(to, dir, "file"+to)
			mustDo(t, os.WriteFile(file, nil, 0o600))
			next("create", file)
		}
		mustDo(t, os.WriteFile(at("beside", to), nil, 0o600))
		next("create", at("beside", to))
	}

	// Two are exchanged for each other.
	mustDo(t, unix.Renameat2(unix.AT_FDCWD, at("100"), unix.AT_FDCWD, at("beside"), unix.RENAME_EXCHANGE))
	next("create", at("beside", "sub", "deep"))
	next("create", at("100", "100"))
	for _, dir := range []string{"100", "beside", "beside/sub/deep"} {
		mustDo(t, os.WriteFile(at(dir, "exchanged"), nil, 0o600))
		next("create", at(dir, "exchanged"))
	}

	// One takes the place of an empty one.
	mustDo(t, os.Mkdir(at("empty"), 0o700))
	next("create", at("empty"))
	mustDo(t, unix.Rename(at("beside"), at("empty"))) // which os.Rename refuses
	next("create", at("empty", "sub", "deep"))
	mustDo(t, os.WriteFile(at("empty", "sub", "in place"), nil, 0o600))
	next("create", at("empty", "sub", "in place"))

	// What leaves the tree is no more told of.
	outside := t.TempDir()
	mustDo(t, os.Rename(at("empty"), filepath.Join(outside, "gone")))
	next("rename", at("empty"))
	mustDo(t, os.WriteFile(filepath.Join(outside, "gone", "sub", "old"), nil, 0o600))
	mustDo(t, os.WriteFile(at("100", "last"), nil, 0o600))
	next("create", at("100", "last"))
}

// Directories of which a watch was not told, because events were lost, were not watched.
func TestWatchAfterEventsThatWereLost(t *testing.T) {
	top := t.TempDir()
	x := newWatch(t, top, maxWatched)
	dir := filepath.Join(top, "lost")
	mustDo(t, os.Mkdir(dir, 0o700))
	awaitEvent(t, x.w, fsnotify.Create, dir) // and nothing comes of it
	mustDo(t, x.anew(t.Context()))
	mustDo(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	awaitEvent(t, x.w, fsnotify.Create, filepath.Join(dir, "file"))
}

// A watch whose top was moved and removed after a directory in it never ended, also when
// its client went: fsnotify told of an error with the lock held that the end of the
// directory's watch waited for.
func TestWatchEndsWhenItsTopAndADirectoryGo(t *testing.T) {
	top := filepath.Join(t.TempDir(), "top")
	dir := filepath.Join(top, "dir")
	mustDo(t, os.MkdirAll(dir, 0o700))
	x := newWatch(t, top, maxWatched)
	mustDo(t, x.addBelow(t.Context(), top, false))
	x.tell = func(m *guestv1.WatchResponse) error {
		if m.GetPath() == dir && m.GetOp() == "remove" {
			for slices.Contains(x.w.WatchList(), top) { // fsnotify has not seen the move yet
				time.Sleep(time.Millisecond)
			}
		}
		return nil
	}
	mustDo(t, os.Remove(dir)) // fsnotify waits with this
	mustDo(t, os.Rename(top, top+"2"))
	mustDo(t, os.RemoveAll(top+"2"))
	ended := make(chan error, 1)
	go func() { ended <- x.follow(t.Context()) }()
	select {
	case err := <-ended:
		if errs.KindOf(err) != errs.NotFound {
			t.Errorf("it ended with %v, want not found", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}

// A watch whose top was moved and removed before fsnotify saw the move ended as if its
// path were invalid.
func TestWatchWhoseTopIsMovedAndRemovedEndsWithNotFound(t *testing.T) {
	for name, recursive := range map[string]bool{"recursive": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			for range 10 { // which of its channels is heard first is chance
				top := filepath.Join(t.TempDir(), "top")
				mustDo(t, os.Mkdir(top, 0o700))
				x := newWatch(t, top, maxWatched)
				x.recursive = recursive
				mustDo(t, os.WriteFile(filepath.Join(top, "file"), nil, 0o600)) // fsnotify waits with this
				mustDo(t, os.Rename(top, top+"2"))
				mustDo(t, os.RemoveAll(top+"2"))
				if err := x.follow(t.Context()); errs.KindOf(err) != errs.NotFound {
					t.Fatalf("it ended with %v, want not found", err)
				}
			}
		})
	}
}

// A watch of one file whose end was among the events that were lost went on for ever.
func TestWatchWhoseTopWentWhileEventsWereLostEnds(t *testing.T) {
	top := filepath.Join(t.TempDir(), "top")
	mustDo(t, os.WriteFile(top, nil, 0o600))
	x := newWatch(t, top, maxWatched)
	x.recursive = false
	mustDo(t, os.Remove(top))
	awaitEvent(t, x.w, fsnotify.Remove, top) // and nothing comes of it
	x.w.Errors <- fsnotify.ErrEventOverflow
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := x.follow(ctx); errs.KindOf(err) != errs.NotFound {
		t.Errorf("it ended with %v, want not found", err)
	}
}

// A file that was made when its watcher was told of lost events could stay unseen: it was
// told before all was watched again.
func TestWatchIsWholeAgainWhenItTellsOfLostEvents(t *testing.T) {
	top := t.TempDir()
	x := newWatch(t, top, maxWatched)
	dir := filepath.Join(top, "dir")
	mustDo(t, os.Mkdir(dir, 0o700))
	awaitEvent(t, x.w, fsnotify.Create, dir) // and nothing comes of it
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	file := filepath.Join(dir, "file")
	x.tell = func(m *guestv1.WatchResponse) error {
		switch {
		case m.GetOp() == "overflow":
			return os.WriteFile(file, nil, 0o600)
		case m.GetPath() == file:
			cancel()
		}
		return nil
	}
	x.w.Errors <- fsnotify.ErrEventOverflow
	if err := x.follow(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v: the file was not seen", err)
	}
}
