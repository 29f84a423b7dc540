package store

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/seal"
)

// TestHandlesDoNotStoreEnvInTheClear also covers a database of a version that
// did.
func TestHandlesDoNotStoreEnvInTheClear(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cubby.db")
	handle := []byte(`{"env":["KEY=hush-5be00d21"]}`)
	s := open(t, path, newClock())
	b := create(t, s, box("a"))
	stored := func() []byte {
		t.Helper()
		var column []byte
		if err := s.row(t.Context(), `SELECT handle FROM sandboxes WHERE uid = $1`, b.UID).Scan(&column); err != nil {
			t.Fatal(err)
		}
		return column
	}
	check := func(after string) {
		t.Helper()
		if column := stored(); !seal.Sealed(string(column)) || bytes.Contains(column, []byte("hush")) {
			t.Errorf("after %s the column is %q", after, column)
		}
		if got, err := s.SandboxByUID(t.Context(), b.UID); err != nil || !bytes.Equal(got.Handle, handle) {
			t.Errorf("after %s the handle is %q, %v", after, got.Handle, err)
		}
	}
	if err := s.SetHandle(t.Context(), b.UID, handle); err != nil {
		t.Fatal(err)
	}
	check("SetHandle")
	if _, err := s.Move(t.Context(), b.UID, sandbox.Stopped, Change{Handle: handle}); err != nil {
		t.Fatal(err)
	}
	check("Move")

	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db := raw(t, path)
	if _, err := db.ExecContext(t.Context(), `UPDATE sandboxes SET handle = ?`, handle); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path, newClock())
	check("an upgrade")
}
