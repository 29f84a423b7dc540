package storetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cubbyhq/cubby/internal/seal"
	"github.com/cubbyhq/cubby/internal/store"
)

// empty is the file of an SQLite database with today's schema and no rows.
var empty = sync.OnceValues(func() (_ []byte, err error) {
	dir, err := os.MkdirTemp("", "cubby-store")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	key, err := seal.OpenKey(filepath.Join(dir, "key"))
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "db")
	s, err := store.Open(context.Background(), store.Config{Path: path, Seal: key})
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// Migrate makes the SQLite database at path as a first [store.Open] would, unless
// there is one. Tests make hundreds, and under the race detector the parser of
// migrations takes a seventh of such a test.
func Migrate(t testing.TB, path string) {
	t.Helper()
	if _, err := os.Stat(path); err == nil {
		return
	}
	db, err := empty()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = os.WriteFile(path, db, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
