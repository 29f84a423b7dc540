//go:build root

package session_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/cubbyhq/cubby/internal/session"
)

// TestFirstSessionsAtOnce opens several sessions in a home without any: each
// gets its directory.
func TestFirstSessionsAtOnce(t *testing.T) {
	for range 50 {
		home := t.TempDir()
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				if dir, note := session.Open(home, session.Dir, fmt.Sprint("s", i), 1000, 1000); dir == "" || note != "" {
					t.Errorf("Open = %q, %q", dir, note)
				}
			})
		}
		group.Wait()
	}
}

// TestDirectoryThatWasNotGivenAway is what an agent leaves that was killed
// between its making and its giving.
func TestDirectoryThatWasNotGivenAway(t *testing.T) {
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, session.Dir, "1000"), 0o700); err != nil {
		t.Fatal(err)
	}
	if dir, note := session.Open(home, session.Dir, "s", 1000, 1000); dir == "" || note != "" {
		t.Errorf("Open = %q, %q", dir, note)
	}
}

// TestAnotherDirectoryOfRootsIsNotGivenAway: the user renamed a directory in which root
// had made one, and a session of that one's name made it the user's.
func TestAnotherDirectoryOfRootsIsNotGivenAway(t *testing.T) {
	home := t.TempDir()
	own := filepath.Join(home, session.Dir, "1000")
	roots := filepath.Join(own, "s")
	for _, err := range []error{
		os.MkdirAll(roots, 0o755), os.Chown(own, 1000, 1000), os.WriteFile(filepath.Join(roots, "tool"), nil, 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if dir, note := session.Open(home, session.Dir, "s", 1000, 1000); dir != "" || note == "" {
		t.Errorf("Open = %q, %q", dir, note)
	}
	if st, err := os.Stat(roots); err != nil || st.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("root's directory is %+v, %v", st, err)
	}
}
