package wal

import (
	"bytes"
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	_ "modernc.org/sqlite"
)

// open makes a database with a table, and its log.
func open(t *testing.T) (*Log, *sql.DB, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=wal_autocheckpoint(0)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE words (word TEXT)"); err != nil {
		t.Fatal(err)
	}
	var l Log
	if err := l.Open(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return &l, db, path
}

func write(t *testing.T, l *Log, db *sql.DB, word string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), "INSERT INTO words VALUES ($1)", word); err != nil {
		t.Fatal(err)
	}
	l.Wrote()
}

func tidy(t *testing.T, l *Log, db *sql.DB) {
	t.Helper()
	if err := l.Tidy(t.Context(), db); err != nil {
		t.Fatal(err)
	}
}

// has reports whether the database itself has a word.
func has(t *testing.T, path, word string) bool {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(data, []byte(word))
}

// A log is copied when it is long or old, and not after every write: the first write
// after that waits for a sync.
func TestTheLogIsCopiedWhenItIsLong(t *testing.T) {
	l, db, path := open(t)
	l.copied = time.Now()
	write(t, l, db, "first-word")
	if tidy(t, l, db); has(t, path, "first-word") {
		t.Error("a short log was copied")
	}
	for range copyCommits {
		write(t, l, db, "more")
	}
	if tidy(t, l, db); !has(t, path, "first-word") || l.commits.Load() != 0 {
		t.Errorf("a long log was not copied: %d commits left", l.commits.Load())
	}
	write(t, l, db, "large-word"+string(bytes.Repeat([]byte("x"), Limit)))
	if tidy(t, l, db); !has(t, path, "large-word") {
		t.Error("a large log was not copied")
	}
}

func TestTheLogIsCopiedWhenItIsOld(t *testing.T) {
	l, db, path := open(t)
	l.copied = time.Now()
	write(t, l, db, "old-word")
	l.copied = time.Now().Add(-copyAge)
	if tidy(t, l, db); !has(t, path, "old-word") {
		t.Error("an old log was not copied")
	}
}

// What a reader keeps from being copied is copied when that has ended.
func TestACopyThatAReaderCutsShortIsRepeated(t *testing.T) {
	l, db, path := open(t)
	write(t, l, db, "one")
	reader, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Rollback()
	var n int
	if err := reader.QueryRowContext(t.Context(), "SELECT count(*) FROM words").Scan(&n); err != nil {
		t.Fatal(err)
	}
	for range copyCommits {
		write(t, l, db, "late-word")
	}
	if tidy(t, l, db); has(t, path, "late-word") {
		t.Fatal("the reader keeps nothing")
	}
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	if tidy(t, l, db); !has(t, path, "late-word") {
		t.Error("the rest was not copied")
	}
}

func TestAnIdleLogIsLeftAlone(t *testing.T) {
	l, db, path := open(t)
	if err := l.Sync(); err != nil || l.unsynced.Load() {
		t.Errorf("Sync = %v", err)
	}
	// To sync what is synced would be an error now.
	f := l.f
	l.f, _ = os.Open(path)
	_ = l.f.Close()
	if err := l.Sync(); err != nil {
		t.Errorf("Sync of what is synced = %v", err)
	}
	l.Wrote()
	if err := l.Sync(); err == nil || !l.unsynced.Load() {
		t.Errorf("Sync that failed = %v, and is not tried again", err)
	}
	l.f = f
	if err := l.Sync(); err != nil || l.unsynced.Load() {
		t.Errorf("the next Sync = %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		var l Log
		for range 3 {
			time.Sleep(2 * copyAge)
			if err := l.Tidy(t.Context(), nil); err != nil { // asks no database
				t.Error(err)
			}
		}
	})
	_ = db
}

func TestAClosedLogHasNothingToSync(t *testing.T) {
	l, _, _ := open(t)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l.Wrote()
	if err := l.Sync(); err != nil {
		t.Errorf("Sync = %v", err)
	}
}
