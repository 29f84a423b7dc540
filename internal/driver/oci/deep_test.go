package oci

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver"
)

// A guest can make directories as deep as its disk has inodes. To remove them takes
// few descriptors of the daemon, or none would be left for all the others, and the
// sandbox could never start again.
func TestDeepDirectoriesOfAGuest(t *testing.T) {
	const depth, descriptors = 3000, 256
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: descriptors, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }()
	for name, remove := range map[string]func(n note) error{
		"in /tmp, at a start": func(n note) error {
			_, err := new(Driver).containerCommand(t.Context(), bundle{note: n})
			return err
		},
		"of a disk that gets a new root filesystem": func(n note) error { return empty(t.Context(), n.root()) },
	} {
		t.Run(name, func(t *testing.T) {
			n := note{Volumes: []volume{{Role: driver.VolumeRoot, Dir: t.TempDir()}}}
			top := filepath.Join(n.root(), "upper/tmp")
			if err := os.MkdirAll(top, 0o700); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = removeGuests(t.Context(), top) }() // what os.RemoveAll cannot
			deepen(t, top, depth)
			if err := remove(n); err != nil {
				t.Errorf("%.300v", err)
			}
			if _, err := os.Lstat(top); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("it is still there: %v", err)
			}
		})
	}
}

// deepen makes a directory in a directory, and so on.
func deepen(t *testing.T, dir string, depth int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range depth {
		if err != nil {
			t.Fatal(err)
		}
		var next int
		if err = unix.Mkdirat(at, "d", 0o700); err == nil {
			next, err = unix.Openat(at, "d", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		_ = unix.Close(at)
		at = next
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(at)
}
