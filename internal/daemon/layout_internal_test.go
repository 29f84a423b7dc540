package daemon

import (
	"testing"
	"time"
)

// TestLockOfADaemonKilledAMomentAgo: a process that a killed daemon was about to
// start may have the lock for a moment longer.
func TestLockOfADaemonKilledAMomentAgo(t *testing.T) {
	dir := t.TempDir()
	held, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	released := make(chan error, 1)
	time.AfterFunc(100*time.Millisecond, func() { released <- held.Close() })
	next, err := lockDir(dir)
	if err != nil {
		t.Fatalf("lockDir = %v, want that it waits", err)
	}
	if err := <-released; err != nil {
		t.Error(err)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}
