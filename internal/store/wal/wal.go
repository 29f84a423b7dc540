// Package wal keeps the write-ahead log of an SQLite database: it says when what was
// committed survives a power cut, and copies the log into the database beside readers
// and writers, so that no commit has to. It syncs and copies nothing that was done
// already. It knows of no table, and the database's own settings are its opener's:
// synchronous=NORMAL, and [Limit] as the journal_size_limit.
package wal

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// The log is copied when it has so many commits or bytes, or the oldest commit is so
// old. The first commit after that begins the log anew, with a sync that its caller
// waits for: so not more often.
const (
	copyCommits = 128
	copyAge     = time.Minute
	Limit       = 8 << 20
)

// Log is that of an open database. Its methods may be called from any goroutine, but
// for Tidy, which is one goroutine's.
type Log struct {
	mu sync.RWMutex
	f  *os.File // nil when closed; guarded by mu

	unsynced atomic.Bool
	commits  atomic.Int64 // that are not copied
	copied   time.Time    // the last time that everything was; Tidy's
}

// Open begins with the log of the database at a path, which somebody has open and which
// may have been written by another process.
func (l *Log) Open(path string) (err error) {
	if l.f, err = os.OpenFile(path+"-wal", os.O_RDWR, 0); err != nil {
		return err
	}
	l.Wrote()
	return nil
}

// Wrote tells of a transaction that may have written.
func (l *Log) Wrote() {
	l.unsynced.Store(true)
	l.commits.Add(1)
}

// Sync makes every commit so far durable. After Close it has nothing to do: closing
// the database has synced it.
func (l *Log) Sync() error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.f == nil || !l.unsynced.Swap(false) {
		return nil
	}
	for {
		if err := unix.Fdatasync(int(l.f.Fd())); !errors.Is(err, unix.EINTR) {
			l.unsynced.CompareAndSwap(false, err != nil)
			return err
		}
	}
}

// Tidy keeps the log short; db is a connection for reading.
func (l *Log) Tidy(ctx context.Context, db *sql.DB) error {
	n := l.commits.Load()
	if n == 0 {
		l.copied = time.Now()
		return nil
	}
	if n < copyCommits && time.Since(l.copied) < copyAge && l.size() <= Limit {
		return nil
	}
	var busy, frames, copied int
	err := db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &frames, &copied)
	// A reader keeps what came after it began from being copied: the next round does it.
	if err == nil && copied == frames {
		l.commits.Add(-n)
		l.copied = time.Now()
	}
	return err
}

func (l *Log) size() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.f == nil {
		return 0
	}
	info, err := l.f.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// Close gives the file back.
func (l *Log) Close() error {
	l.mu.Lock()
	f := l.f
	l.f = nil
	l.mu.Unlock()
	if f == nil {
		return nil
	}
	return f.Close()
}
