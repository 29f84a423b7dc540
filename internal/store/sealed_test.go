package store

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
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
		if err := s.reads.Row(t.Context(), `SELECT handle FROM sandboxes WHERE uid = $1`, b.UID).Scan(&column); err != nil {
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
	if _, err := s.Move(t.Context(), b.UID, sandbox.Stopped, Change{Why: asked, Handle: handle}); err != nil {
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

// TestServicesAreStoredSealed: their env is never in the clear, and gone with the
// sandbox; what became of them is forgotten when it stops.
func TestServicesAreStoredSealed(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "cubby.db"), newClock())
	b := box("a")
	b.Spec.Services = []sandbox.Service{{Name: "web", Command: "serve", Env: map[string]string{"KEY": "hush-5be00d21"}}}
	b = create(t, s, b)
	states := map[string]sandbox.ServiceState{"web": {Phase: sandbox.ServiceFailed, Quick: 5}}
	if err := s.SetServices(t.Context(), b.UID, states); err != nil {
		t.Fatal(err)
	}
	var spec, column []byte
	if err := s.reads.Row(t.Context(), `SELECT spec, services FROM sandboxes WHERE uid = $1`, b.UID).Scan(&spec, &column); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(spec, []byte("hush")) || bytes.Contains(spec, []byte("serve")) || !seal.Sealed(string(column)) {
		t.Errorf("the columns are %q and %q", spec, column)
	}
	got, err := s.SandboxByUID(t.Context(), b.UID)
	if err != nil || got.Services["web"] != states["web"] || got.Spec.Services[0].Env["KEY"] != "hush-5be00d21" {
		t.Errorf("read again it is %+v, %+v, %v", got.Spec.Services, got.Services, err)
	}
	if got, err = s.Move(t.Context(), b.UID, sandbox.Stopped, Change{Why: asked}); err != nil || got.Services != nil || len(got.Spec.Services) != 1 {
		t.Errorf("stopped it has %+v, %+v, %v", got.Spec.Services, got.Services, err)
	}
	if err := s.SetServices(t.Context(), b.UID, states); !errors.Is(err, errs.WrongState) {
		t.Errorf("SetServices of a stopped one: %v", err)
	}
	if got, err = s.Move(t.Context(), b.UID, sandbox.Destroyed, Change{}); err != nil || got.Spec.Services[0].Env != nil {
		t.Errorf("destroyed it has %+v, %v", got.Spec.Services, err)
	}
	if got, err = s.SandboxByUID(t.Context(), b.UID); err != nil || got.Spec.Services[0].Env != nil {
		t.Errorf("destroyed and read again it has %+v, %v", got.Spec.Services, err)
	}
}
