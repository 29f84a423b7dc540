package guestd

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

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
	x := &watch{f: &fileService{}, w: w, name: top, here: top, recursive: true, most: most}
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
