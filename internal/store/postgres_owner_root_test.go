//go:build root

package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store/engine"
	"github.com/cubbyhq/cubby/internal/store/postgrestest"
)

// TestBinding: a database and a data directory that do not belong together are
// refused before anything is read or written.
func TestBinding(t *testing.T) {
	db := func() string { return postgrestest.New(t) }
	dir := func() string { return filepath.Join(t.TempDir(), "cubby.db") }
	used := func(c Config) Config {
		s := openAt(t, c, newClock())
		create(t, s, box("a"))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	one, two := used(Config{Path: dir(), URL: db()}), used(Config{Path: dir(), URL: db()})
	lite := used(Config{Path: dir()})
	for name, c := range map[string]Config{
		"a new directory":                             {Path: dir(), URL: one.URL},
		"a new database":                              {Path: one.Path, URL: db()},
		"another's directory":                         {Path: two.Path, URL: one.URL},
		"a directory with SQLite":                     {Path: lite.Path, URL: db()},
		"a directory with SQLite, and a database":     {Path: lite.Path, URL: one.URL},
		"a directory of a database, and no URL of it": {Path: one.Path},
	} {
		_, err := Open(t.Context(), c)
		wantKind(t, name, err, errs.Conflict)
		if errs.KindOf(err) == errs.Conflict && errs.Public(err).Hint == "" {
			t.Errorf("%s: no hint in %v", name, err)
		}
	}
	s := openAt(t, one, newClock())
	if _, err := s.Sandbox(t.Context(), "a"); err != nil {
		t.Errorf("the right pair: %v", err)
	}
}

// TestBindingIsCarriedOn: a crash between the two halves of a binding.
func TestBindingIsCarriedOn(t *testing.T) {
	where := Config{Path: filepath.Join(t.TempDir(), "cubby.db"), URL: postgrestest.New(t)}
	file := filepath.Join(filepath.Dir(where.Path), engine.BindingName)
	if err := os.WriteFile(file, []byte("new 01abc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "new 01abc\n"} { // before the database was told, and after
		if text != "" {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := openAt(t, where, newClock()).Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != "01abc\n" {
			t.Errorf("the binding is %q, %v", got, err)
		}
	}
}

// TestOneDaemonPerDatabase: the second is refused and changes nothing for the
// first.
func TestOneDaemonPerDatabase(t *testing.T) {
	where := Config{Path: filepath.Join(t.TempDir(), "cubby.db"), URL: postgrestest.New(t)}
	s := openAt(t, where, newClock())
	_, err := engine.OpenPostgres(t.Context(), where.URL, where.Path, migrations("postgres"), s.log, 0)
	wantKind(t, "a second daemon", err, errs.Conflict)
	create(t, s, box("a"))
}

// TestTakenOver: a daemon whose connection was lost, and with it the lock, and
// whose database another one took meanwhile, cannot write any more and ends.
func TestTakenOver(t *testing.T) {
	where := Config{Path: filepath.Join(t.TempDir(), "cubby.db"), URL: postgrestest.New(t)}
	old := openAt(t, where, newClock())
	create(t, old, box("a"))
	ended := make(chan error, 1)
	conn := admin(t, where.URL)
	run(t, conn, `UPDATE ownership SET epoch = epoch + 1`)
	run(t, conn, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cubby'`)
	wantKind(t, "a write", old.CreateSandbox(t.Context(), box("b")), errs.Unready)
	_, err := old.Sandbox(t.Context(), "a")
	wantKind(t, "a read", err, errs.Unready)
	go func() { ended <- old.Run(t.Context()) }()
	if err := <-ended; errs.KindOf(err) != errs.Unready || !strings.Contains(errs.Public(err).Message, "taken over") {
		t.Errorf("Run = %v", err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, where, newClock())
	if _, err := s.Sandbox(t.Context(), "b"); !errors.Is(err, errs.NotFound) {
		t.Errorf("what the old one was refused: %v", err)
	}
}

// TestFencedWrite: the same with the connection alive.
func TestFencedWrite(t *testing.T) {
	where := Config{Path: filepath.Join(t.TempDir(), "cubby.db"), URL: postgrestest.New(t)}
	old := openAt(t, where, newClock())
	run(t, admin(t, where.URL), `UPDATE ownership SET epoch = epoch + 1`)
	wantKind(t, "a write", old.CreateSandbox(t.Context(), box("b")), errs.Unready)
	if err := old.Run(t.Context()); errs.KindOf(err) != errs.Unready {
		t.Errorf("Run = %v", err)
	}
}

// TestRestoredDatabase: a server that has lost what it acknowledged is not
// taken for what it was.
func TestRestoredDatabase(t *testing.T) {
	where := Config{Path: filepath.Join(t.TempDir(), "cubby.db"), URL: postgrestest.New(t)}
	s := openAt(t, where, newClock())
	create(t, s, box("a"))
	conn := admin(t, where.URL)
	run(t, conn, `UPDATE ownership SET count = count - 1`)
	run(t, conn, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cubby'`)
	wantKind(t, "a write", s.CreateSandbox(t.Context(), box("b")), errs.Unready)
	if err := s.Run(t.Context()); err == nil || !strings.Contains(errs.Public(err).Message, "as this daemon left it") {
		t.Errorf("Run = %v", err)
	}
}
