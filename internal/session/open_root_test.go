//go:build root

package session_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
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
