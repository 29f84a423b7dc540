package journal

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// spares are empty logs that were made in advance. Making a file can cost ext4
// a millisecond while many were deleted lately (it passes over their inodes for
// minutes), which is as much as a whole short command; a rename costs none of
// it.
type spares struct {
	dir   string
	taken chan struct{} // has a token when one was wanted

	mu    sync.Mutex
	ready []*os.File // with the magic written; guarded by mu
	made  int        // names the next; guarded by mu
	ended bool       // guarded by mu
}

// spareCount covers a burst of execs between two rounds of refilling.
const spareCount = 32

// Run keeps a few empty logs ready, so that Create need not make a file, until
// ctx ends. Journals work without it, so it returns nothing but nil: after a failure
// it tries again when the next log is made.
func (j *Journals) Run(ctx context.Context) error {
	s := &j.spares
	defer s.end()
	for cleared := false; ; {
		// What an earlier process left was never used, and has the names of what is made.
		cleared = cleared || os.RemoveAll(s.dir) == nil
		if cleared {
			s.fill(ctx) //nolint:errcheck // who needs a file and gets none reports why
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.taken:
		}
	}
}

func (s *spares) fill(ctx context.Context) error {
	if err := os.Mkdir(s.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for ctx.Err() == nil && s.missing() {
		s.mu.Lock()
		s.made++
		path := filepath.Join(s.dir, strconv.Itoa(s.made)+suffix)
		s.mu.Unlock()
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		if err := pwritev(f, 0, []byte(magic)); err != nil {
			return errors.Join(err, f.Close(), os.Remove(path))
		}
		s.mu.Lock()
		s.ready = append(s.ready, f)
		s.mu.Unlock()
	}
	return ctx.Err()
}

func (s *spares) missing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.ended && len(s.ready) < spareCount
}

// take moves a spare log to a path where no file is, and returns nil when
// there is none or the path cannot be used.
func (s *spares) take(path string) *os.File {
	// Also when there is none: what kept them from being made may be over.
	defer func() {
		select {
		case s.taken <- struct{}{}:
		default:
		}
	}()
	s.mu.Lock()
	n := len(s.ready)
	if n == 0 {
		s.mu.Unlock()
		return nil
	}
	f := s.ready[n-1]
	s.ready = s.ready[:n-1]
	s.mu.Unlock()
	if err := unix.Renameat2(unix.AT_FDCWD, f.Name(), unix.AT_FDCWD, path, unix.RENAME_NOREPLACE); err != nil {
		s.discard(f)
		return nil
	}
	return f
}

func (s *spares) discard(f *os.File) {
	f.Close()
	os.Remove(f.Name())
}

// end removes what was not used.
func (s *spares) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, f := range s.ready {
		s.discard(f)
	}
	s.ready = nil
	os.Remove(s.dir)
}
