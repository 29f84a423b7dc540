//go:build root

package store

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/postgrestest"
)

func init() { newPostgres = postgrestest.New }

// shared are the tests of what a store promises, whatever its database. They
// run on SQLite by themselves and on PostgreSQL here.
var shared = map[string]func(*testing.T){
	"TestCanceledContext":                   TestCanceledContext,
	"TestClosed":                            TestClosed,
	"TestConcurrentCreates":                 TestConcurrentCreates,
	"TestEndedSandboxKeepsNoSecrets":        TestEndedSandboxKeepsNoSecrets,
	"TestEvents":                            TestEvents,
	"TestEventsByKind":                      TestEventsByKind,
	"TestExecErrors":                        TestExecErrors,
	"TestExecIsFinishedWithItsResult":       TestExecIsFinishedWithItsResult,
	"TestExecLife":                          TestExecLife,
	"TestExecLists":                         TestExecLists,
	"TestIDs":                               TestIDs,
	"TestIdempotency":                       TestIdempotency,
	"TestKeptDisks":                         TestKeptDisks,
	"TestKilledWriter":                      TestKilledWriter,
	"TestList":                              TestList,
	"TestMoves":                             TestMoves,
	"TestOneMoveWins":                       TestOneMoveWins,
	"TestPanicInAChange":                    TestPanicInAChange,
	"TestPrune":                             TestPrune,
	"TestSandboxRoundTrip":                  TestSandboxRoundTrip,
	"TestSeqWithoutGaps":                    TestSeqWithoutGaps,
	"TestTouchOnlyForward":                  TestTouchOnlyForward,
	"TestUnfinishedClaimsEndWithTheProcess": TestUnfinishedClaimsEndWithTheProcess,
	"TestUpdateSpec":                        TestUpdateSpec,
	"TestWatchEvents":                       TestWatchEvents,
}

// onlySQLite are those of what only an SQLite file has.
var onlySQLite = []string{"TestDurability", "TestEveryStatementUsesAnIndex", "TestSchema"}

func TestOnPostgreSQL(t *testing.T) {
	postgrestest.New(t) // keeps the server for all subtests
	for _, name := range slices.Sorted(maps.Keys(shared)) {
		t.Run(name, shared[name])
	}
}

// BenchmarkOnPostgreSQL measures without syncs: see postgrestest.
func BenchmarkOnPostgreSQL(b *testing.B) {
	postgrestest.New(b)
	b.Run("Store", BenchmarkStore)
}

// TestEveryTestIsForAllDatabases finds tests that open a store, not at a path of
// their own, and are neither in shared nor in onlySQLite.
func TestEveryTestIsForAllDatabases(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.Contains(name, "_root_") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(fn.Name.Name, "Test") || fn.Name.Name == "TestMain" {
				continue
			}
			opens := false
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					opens = opens || slices.Contains([]string{"fresh", "somewhere"}, id.Name)
				}
				return true
			})
			if opens && shared[fn.Name.Name] == nil && !slices.Contains(onlySQLite, fn.Name.Name) {
				t.Errorf("%s: %s opens a store: name it in shared, or in onlySQLite", name, fn.Name.Name)
			}
		}
	}
}

// TestSchemasAgree compares the tables of both databases, column by column, and
// their indexes.
func TestSchemasAgree(t *testing.T) {
	lite, _ := fresh(t)
	post := openAt(t, Config{Path: filepath.Join(t.TempDir(), "cubby.db"), URL: postgrestest.New(t)}, newClock())
	describe := func(s *Store, query string) []string {
		rows, err := s.engine.read.QueryContext(t.Context(), query)
		list, err := collect(rows, err, func(r row) (line string, err error) { return line, r.Scan(&line) })
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(list)
		return list
	}
	columns := describe(lite, `SELECT m.name || '.' || c.name || ' ' || CASE c.type WHEN 'INTEGER' THEN 'bigint' WHEN 'BLOB' THEN 'bytea' ELSE lower(c.type) END ||
			CASE WHEN c."notnull" OR c.pk THEN ' not null' ELSE '' END
		FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' AND m.name NOT LIKE 'goose%' AND m.name NOT LIKE 'sqlite%'`)
	if diff := cmp.Diff(columns, describe(post, `SELECT table_name || '.' || column_name || ' ' || data_type ||
			CASE is_nullable WHEN 'NO' THEN ' not null' ELSE '' END
		FROM information_schema.columns WHERE table_schema = 'public' AND table_name NOT LIKE 'goose%' AND table_name <> 'ownership'`)); diff != "" {
		t.Errorf("columns (-SQLite +PostgreSQL):\n%s", diff)
	}
	indexes := describe(lite, `SELECT sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL`)
	got := describe(post, `SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename NOT LIKE 'goose%'
		AND tablename <> 'ownership' AND indexname NOT IN (SELECT conname FROM pg_constraint)`)
	// PostgreSQL prints a definition in its own words.
	normal := func(defs []string) []string {
		for i, def := range defs {
			def, _, _ = strings.Cut(strings.NewReplacer("ON public.", "ON ", " USING btree", "").Replace(def), " WHERE ")
			defs[i] = def
		}
		slices.Sort(defs)
		return defs
	}
	if diff := cmp.Diff(normal(indexes), normal(got)); diff != "" {
		t.Errorf("indexes (-SQLite +PostgreSQL):\n%s", diff)
	}
	partial := func(s *Store, query string) int { return len(describe(s, query)) }
	if a, b := partial(lite, `SELECT name FROM sqlite_master WHERE type = 'index' AND sql LIKE '% WHERE %'`),
		partial(post, `SELECT indexname FROM pg_indexes WHERE schemaname = 'public' AND indexdef LIKE '% WHERE %'`); a != b {
		t.Errorf("%d partial indexes in SQLite, %d in PostgreSQL", a, b)
	}
}

// TestMigrationsHaveTheSameNumbers: the newest schema has one number.
func TestMigrationsHaveTheSameNumbers(t *testing.T) {
	newest := func(dir string) string {
		files, err := os.ReadDir(filepath.Join("migrations", dir))
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`^\d+`).FindString(files[len(files)-1].Name())
	}
	if a, b := newest("sqlite"), newest("postgres"); a != b {
		t.Errorf("the newest schema is %s of SQLite and %s of PostgreSQL", a, b)
	}
}

func admin(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // its server may be gone
	return conn
}

func run(t *testing.T, conn *pgx.Conn, query string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// TestNewerPostgresIsRefused: a database that a newer cubby has written stays
// as it is.
func TestNewerPostgresIsRefused(t *testing.T) {
	where := Config{Path: filepath.Join(t.TempDir(), "cubby.db"), URL: postgrestest.New(t)}
	if err := openAt(t, where, newClock()).Close(); err != nil {
		t.Fatal(err)
	}
	conn := admin(t, where.URL)
	run(t, conn, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)`)
	_, err := Open(t.Context(), where)
	wantKind(t, "Open", err, errs.Unsupported)
	var epoch int
	if err := conn.QueryRow(t.Context(), `SELECT epoch FROM ownership`).Scan(&epoch); err != nil || epoch != 1 {
		t.Errorf("a refused database has epoch %d, %v", epoch, err)
	}
}

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
	file := filepath.Join(filepath.Dir(where.Path), bindingName)
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
	_, err := openPostgres(t.Context(), where, s.log, 0)
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

// TestDeadlockIsRetried: a foreign transaction waits for what a write holds and
// holds what it needs.
func TestDeadlockIsRetried(t *testing.T) {
	where := Config{Path: filepath.Join(t.TempDir(), "cubby.db"), URL: postgrestest.New(t)}
	s := openAt(t, where, newClock())
	a, b := create(t, s, box("a")), create(t, s, box("b"))
	other := admin(t, where.URL)
	run(t, other, `SET deadlock_timeout = '1h'`) // the store's is the one to give way
	run(t, other, `BEGIN`)
	run(t, other, fmt.Sprintf(`UPDATE sandbox_activity SET last_seq = last_seq WHERE box = '%s'`, b.UID))
	runs := 0
	var waited sync.WaitGroup
	err := s.update(t.Context(), durable, func(tx *tx) error {
		if runs++; runs == 1 {
			if err := tx.touch(a.UID, s.now().Add(time.Hour)); err != nil {
				return err
			}
			waited.Go(func() {
				_, err := other.Exec(t.Context(), fmt.Sprintf(`UPDATE sandbox_activity SET last_seq = last_seq WHERE box = '%s'`, a.UID))
				if _, rollback := other.Exec(t.Context(), `ROLLBACK`); err != nil || rollback != nil {
					t.Errorf("the foreign transaction: %v, %v", err, rollback)
				}
			})
			waitUntil(t, func() bool {
				var n int
				err := s.engine.read.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_locks WHERE NOT granted`).Scan(&n)
				return err == nil && n > 0
			})
		}
		return tx.touch(b.UID, s.now().Add(time.Hour))
	})
	waited.Wait()
	if err != nil || runs < 2 {
		t.Errorf("a write in a deadlock = %v after %d runs", err, runs)
	}
}

// waitUntil returns when cond holds.
func waitUntil(t *testing.T, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen within a minute")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestServerGoneAndBack kills the server under writers and readers, again and
// again. Nothing that was acknowledged is lost, nothing that was refused is
// there, refusals are Unready, and everything goes on without help.
func TestServerGoneAndBack(t *testing.T) {
	server := postgrestest.Start(t)
	where := Config{Path: filepath.Join(t.TempDir(), "cubby.db"), URL: server.NewDatabase(t)}
	s := openAt(t, where, newClock())
	b := create(t, s, box("a"))
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	var mu sync.Mutex
	made := map[sandbox.UID]int64{} // seq by uid
	refused := map[sandbox.UID]bool{}
	var cursors []int64
	for range 4 {
		work.Go(func() {
			for ctx.Err() == nil {
				uid := sandbox.NewUID()
				seq, err := s.CreateExec(t.Context(), sandbox.Exec{UID: uid, Box: b.UID})
				mu.Lock()
				switch {
				case err == nil:
					made[uid] = seq
				case errors.Is(err, errs.Unready):
					refused[uid] = true
				default:
					t.Errorf("CreateExec: %v", err)
				}
				mu.Unlock()
				cursor, err := s.AppendEvent(t.Context(), sandbox.Event{Box: b.UID, Kind: "x"})
				if err == nil {
					mu.Lock()
					cursors = append(cursors, cursor)
					mu.Unlock()
				} else if !errors.Is(err, errs.Unready) {
					t.Errorf("AppendEvent: %v", err)
				}
			}
		})
	}
	work.Go(func() {
		for ctx.Err() == nil {
			got, err := s.Sandbox(t.Context(), "a")
			if err != nil && !errors.Is(err, errs.Unready) || err == nil && got.UID != b.UID {
				t.Errorf("Sandbox = %v, %v", got.UID, err)
			}
		}
	})
	work.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(made) }
	for range 3 {
		before := count()
		waitUntil(t, func() bool { return count() > before+20 })
		server.Kill()
		_, err := s.Sandbox(t.Context(), "a")
		wantKind(t, "a read without a server", err, errs.Unready)
		if errs.Public(err).RetryAfter == 0 {
			t.Error("it does not say when to try again")
		}
		wantKind(t, "Ping without a server", s.Ping(t.Context()), errs.Unready)
		server.Restart(t)
	}
	before := count()
	waitUntil(t, func() bool { return count() > before+20 })
	stop()
	work.Wait()
	var all []sandbox.Exec
	for q := (ExecQuery{Limit: 1000}); ; q.AfterSeq = all[len(all)-1].Seq {
		page, err := s.Execs(t.Context(), b.UID, q)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		all = append(all, page...)
	}
	for i, e := range all {
		if e.Seq != int64(i+1) {
			t.Fatalf("exec %d has the number %d", i+1, e.Seq)
		}
		if refused[e.UID] {
			t.Errorf("exec %d was refused and is there", e.Seq)
		}
		if seq, ok := made[e.UID]; ok && seq != e.Seq {
			t.Errorf("exec %d was acknowledged as %d", e.Seq, seq)
		}
		delete(made, e.UID)
	}
	if len(made) > 0 {
		t.Errorf("%d execs that were acknowledged are lost", len(made))
	}
	stored := map[int64]bool{}
	for after := int64(0); ; {
		page, err := s.Events(t.Context(), b.UID, after, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			stored[e.Cursor] = true
		}
		after = page[len(page)-1].Cursor
	}
	for _, c := range cursors {
		if !stored[c] {
			t.Errorf("event %d was acknowledged and is lost, or its cursor was given twice", c)
		}
		delete(stored, c)
	}
}

// TestRefusedLogin: what a server says against a user is told, and no password.
func TestRefusedLogin(t *testing.T) {
	url := postgrestest.New(t)
	for name, c := range map[string]struct{ url, want string }{
		"no such user":     {strings.Replace(url, "user=postgres", "user=nobody-here&password=hunter2", 1), "refuses the user"},
		"no such database": {strings.Replace(url, "/test", "/missing", 1) + "&password=hunter2", "does not exist"},
		"not a URL":        {"postgres://user:hunter2@host:port:1/x", "cannot be read"},
		"nobody listens":   {"postgres://user:hunter2@127.0.0.1:1/x", "cannot be reached"},
	} {
		_, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "cubby.db"), URL: c.url})
		if err == nil || !strings.Contains(errs.Public(err).Message, c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
