package store

import (
	"database/sql"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/seal"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

var update = flag.Bool("update", false, "rewrite testdata/schema.sql")

// raw opens the file without the store.
func raw(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// TestSchema keeps a migration that was released from being edited: its
// schema changes by a further migration, and testdata with it.
func TestSchema(t *testing.T) {
	s, _ := fresh(t)
	rows, err := s.reads.Rows(t.Context(), `SELECT sql FROM sqlite_master
		WHERE sql IS NOT NULL AND name NOT LIKE 'goose%' AND name NOT LIKE 'sqlite%' ORDER BY type DESC, name`)
	parts, err := engine.Collect(rows, err, func(r engine.Row) (text string, err error) { return text, r.Scan(&text) })
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(parts, ";\n\n") + ";\n"
	golden := filepath.Join("testdata", "schema.sql")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("schema (-testdata +migrations):\n%s", diff)
	}
}

// TestReleasedSchemas opens a database of every schema that was ever released;
// testdata/released-<version>.sql is a dump of one with a row in every table.
func TestReleasedSchemas(t *testing.T) {
	dumps, err := filepath.Glob("testdata/released-*.sql")
	if err != nil || len(dumps) == 0 {
		t.Fatalf("dumps: %v, %v", dumps, err)
	}
	for _, dump := range dumps {
		t.Run(filepath.Base(dump), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cubby.db")
			script, err := os.ReadFile(dump)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := raw(t, path).ExecContext(t.Context(), string(script)); err != nil {
				t.Fatal(err)
			}
			s := open(t, path, newClock())
			b, err := s.Sandbox(t.Context(), "Box")
			if err != nil || b.State != sandbox.Running || b.Spec.Labels["k"] != "v" || string(b.Handle) != "\x00\x01" {
				t.Fatalf("Sandbox = %+v, %v", b, err)
			}
			items, _, err := s.Sandboxes(t.Context(), Query{Labels: map[string]string{"k": "v"}})
			if err != nil || len(items) != 1 {
				t.Errorf("Sandboxes by label = %d, %v", len(items), err)
			}
			env, err := s.ExecEnv(t.Context(), b.UID, 2)
			if err != nil || env["KEY"] != "value" {
				t.Errorf("ExecEnv = %v, %v", env, err)
			}
			e, err := s.Exec(t.Context(), b.UID, 1)
			if err != nil || e.Exit == nil || *e.Exit.Code != 3 {
				t.Errorf("Exec = %+v, %v", e, err)
			}
			disks, err := s.KeptDisks(t.Context())
			if err != nil || len(disks) != 1 || disks[0].External.UserID != "u" {
				t.Errorf("KeptDisks = %+v, %v", disks, err)
			}
			claim, err := s.Idempotency(t.Context(), "p", "k", "h")
			if err != nil {
				t.Fatal(err)
			}
			if result, ok := claim.Result(); !ok || result != string(b.UID) {
				t.Errorf("Result = %q, %v", result, ok)
			}
			events, err := s.Events(t.Context(), b.UID, 0, 0)
			if err != nil || len(events) != 1 || events[0].Cursor != 7 {
				t.Errorf("Events = %+v, %v", events, err)
			}
			if seq, err := s.CreateExec(t.Context(), sandbox.Exec{UID: sandbox.NewUID(), Box: b.UID}); err != nil || seq != 3 {
				t.Errorf("CreateExec = %d, %v, want 3", seq, err)
			}
		})
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cubby.db")
	s := open(t, path, newClock())
	create(t, s, box("a"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db := raw(t, path)
	if _, err := db.ExecContext(t.Context(), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, 1)`); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), Config{Path: path})
	wantKind(t, "Open", err, errs.Unsupported)
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(before) != string(after) {
		t.Error("a refused database was changed")
	}
}

func TestDamagedFileIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cubby.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("this is no database. ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Config{Path: path})
	if errs.Public(err).Message != "the store is damaged" {
		t.Errorf("Open = %v (%+v), want damage named", err, errs.Public(err))
	}
}

// TestPathsWithMarks opens files whose names mean something in a URI.
func TestPathsWithMarks(t *testing.T) {
	for _, name := range []string{"a b", "50%", "q?mode=memory", "h#x", "ü"} {
		path := filepath.Join(t.TempDir(), name, "cubby.db")
		s := open(t, path, newClock())
		create(t, s, box("a"))
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%s: the file is not where it should be: %v", name, err)
		}
	}
}

// TestCausesOfEarlierSandboxes takes over the database of a daemon that knew
// reasons alone: testdata/sandboxes-7.sql has a sandbox in every state, and is
// sealed with the key beside it.
func TestCausesOfEarlierSandboxes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cubby.db")
	script, err := os.ReadFile("testdata/sandboxes-7.sql")
	if err != nil {
		t.Fatal(err)
	}
	db := raw(t, path)
	for _, text := range []string{string(script), giveATenant} {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	wantCauses(t, Config{Path: path}, "testdata/sandboxes-7.key", map[sandbox.ID]sandbox.Cause{
		"run-gvisor": sandbox.CauseNone, "run-container": sandbox.CauseNone, "stopped-container": sandbox.CauseRequest,
		"died-container": sandbox.CauseDied, "idle-container": sandbox.CauseIdle, "failed-container": sandbox.CauseUndone,
		"kept-container": sandbox.CauseRequest,
	})
}

// giveATenant makes some of the sandboxes of an earlier daemon a tenant's.
const giveATenant = `UPDATE sandboxes SET tenant = 'acme' WHERE id LIKE '%-container'`

// wantCauses opens a store of an earlier daemon, and looks for the causes of its
// sandboxes and their handles, which are sealed. Those of a tenant share its
// files.
func wantCauses(t *testing.T, where Config, keyFile string, want map[sandbox.ID]sandbox.Cause) {
	t.Helper()
	key, err := seal.OpenKey(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	where.Seal, where.Now = key, newClock().Now
	s, err := Open(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	list, _, err := s.Sandboxes(t.Context(), Query{States: sandbox.States()})
	if err != nil {
		t.Fatal(err)
	}
	got := map[sandbox.ID]sandbox.Cause{}
	for _, b := range list {
		got[b.ID] = b.Cause
		if shares := b.Tenant != "" && b.State.Live(); b.Spec.SharedFiles != shares {
			t.Errorf("%s of the tenant %q, %s, shares files: %t, want %t", b.ID, b.Tenant, b.State, b.Spec.SharedFiles, shares)
		}
		if b.Driver != "oci" {
			t.Errorf("the driver of %s is %q, want the one that there was", b.ID, b.Driver)
		}
		if b.State != sandbox.Failed && b.State != sandbox.Destroyed && !json.Valid(b.Handle) {
			t.Errorf("the handle of %s cannot be read", b.ID)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("causes (-want +got):\n%s", diff)
	}
}
