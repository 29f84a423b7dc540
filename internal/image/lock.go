package image

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// lockPause is the time between two looks at a lock that another process holds.
const lockPause = 20 * time.Millisecond

// lock takes the flock of the file at path, waiting until ctx ends.
func lock(ctx context.Context, path string) (release func(), err error) {
	l := flock.New(path)
	if _, err := l.TryLockContext(ctx, lockPause); err != nil {
		return nil, fmt.Errorf("wait for the lock %s: %w", filepath.Base(path), err)
	}
	return releaser(l), nil
}

// tryLock reports false when another open file holds the lock.
func tryLock(path string) (release func(), ok bool, err error) {
	l := flock.New(path)
	ok, err = l.TryLock()
	if err != nil {
		return nil, false, fmt.Errorf("lock %s: %w", filepath.Base(path), err)
	}
	return releaser(l), ok, nil
}

// releaser gives a lock back. That fails only for a descriptor that is none.
func releaser(l *flock.Flock) func() { return func() { _ = l.Unlock() } }
