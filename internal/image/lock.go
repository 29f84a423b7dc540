package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lock takes the flock of the file at path, waiting until ctx ends.
func lock(ctx context.Context, path string) (release func(), err error) {
	for {
		release, ok, err := tryLock(path)
		if err != nil || ok {
			return release, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s: %w", filepath.Base(path), ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// tryLock reports false when another open file holds the lock.
func tryLock(path string) (release func(), ok bool, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, err
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case err == nil:
		return func() { f.Close() }, true, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		f.Close()
		return nil, false, nil
	default:
		f.Close()
		return nil, false, fmt.Errorf("lock %s: %w", filepath.Base(path), err)
	}
}
