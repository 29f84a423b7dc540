//go:build root

package store

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/engine"
	"github.com/cubbyhq/cubby/internal/store/postgrestest"
)

// shared are the tests of what a store promises, whatever its database. They
// run on SQLite by themselves and on PostgreSQL here.
var shared = map[string]func(*testing.T){
	"TestCanceledContext":                        TestCanceledContext,
	"TestCancelledExecs":                         TestCancelledExecs,
	"TestCopiedSecretIsNotOpened":                TestCopiedSecretIsNotOpened,
	"TestClosed":                                 TestClosed,
	"TestUseOfConversations":                     TestUseOfConversations,
	"TestTrimmedConversation":                    TestTrimmedConversation,
	"TestAProbeWritesNothing":                    TestAProbeWritesNothing,
	"TestConcurrentCreates":                      TestConcurrentCreates,
	"TestEndedSandboxKeepsNoSecrets":             TestEndedSandboxKeepsNoSecrets,
	"TestEvents":                                 TestEvents,
	"TestEventsByKind":                           TestEventsByKind,
	"TestExports":                                TestExports,
	"TestExecErrors":                             TestExecErrors,
	"TestExecIsFinishedWithItsResult":            TestExecIsFinishedWithItsResult,
	"TestExecLife":                               TestExecLife,
	"TestExecLists":                              TestExecLists,
	"TestHistoryBytesOfATenantFollowEveryChange": TestHistoryBytesOfATenantFollowEveryChange,
	"TestHistoryOfATenantIsEvictedOldestFirst":   TestHistoryOfATenantIsEvictedOldestFirst,
	"TestHoldingsOfATenant":                      TestHoldingsOfATenant,
	"TestIDs":                                    TestIDs,
	"TestIdempotency":                            TestIdempotency,
	"TestKeptDisks":                              TestKeptDisks,
	"TestKilledWriter":                           TestKilledWriter,
	"TestList":                                   TestList,
	"TestMoves":                                  TestMoves,
	"TestNewestExecsOfAKind":                     TestNewestExecsOfAKind,
	"TestNoSandboxRestsWithoutAReason":           TestNoSandboxRestsWithoutAReason,
	"TestOneMoveWins":                            TestOneMoveWins,
	"TestPanicInAChange":                         TestPanicInAChange,
	"TestPrune":                                  TestPrune,
	"TestSandboxRoundTrip":                       TestSandboxRoundTrip,
	"TestSecrets":                                TestSecrets,
	"TestSecretsOfATenantAreBounded":             TestSecretsOfATenantAreBounded,
	"TestSecretsWithAnotherKeyAreNotEmpty":       TestSecretsWithAnotherKeyAreNotEmpty,
	"TestSeqWithoutGaps":                         TestSeqWithoutGaps,
	"TestSnapshots":                              TestSnapshots,
	"TestSnapshotNames":                          TestSnapshotNames,
	"TestMoveAll":                                TestMoveAll,
	"TestRestate":                                TestRestate,
	"TestThreads":                                TestThreads,
	"TestTouchOnlyForward":                       TestTouchOnlyForward,
	"TestUnfinishedClaimsEndWithTheProcess":      TestUnfinishedClaimsEndWithTheProcess,
	"TestUpdateSpec":                             TestUpdateSpec,
	"TestWatchEvents":                            TestWatchEvents,
	"TestTenants":                                TestTenants,
	"TestTenantWithSandboxesIsNotDropped":        TestTenantWithSandboxesIsNotDropped,
	"TestAssistants":                             TestAssistants,
	"TestAssistantQueries":                       TestAssistantQueries,
	"TestAssistantsOfATenantAreBounded":          TestAssistantsOfATenantAreBounded,
	"TestConversations":                          TestConversations,
	"TestConversationQueries":                    TestConversationQueries,
	"TestConversationOfOddText":                  TestConversationOfOddText,
	"TestStaleConversations":                     TestStaleConversations,
	"TestRemovedConversationLeavesNothing":       TestRemovedConversationLeavesNothing,
	"TestCommit":                                 TestCommit,
	"TestStateInManyPieces":                      TestStateInManyPieces,
	"TestCheckpoints":                            TestCheckpoints,
	"TestCheckpointsBeyondABatch":                TestCheckpointsBeyondABatch,
	"TestThreadsStayLinear":                      TestThreadsStayLinear,
	"TestLargeMessages":                          TestLargeMessages,
	"TestConcurrentCommits":                      TestConcurrentCommits,
	"TestRuns":                                   TestRuns,
	"TestRunLists":                               TestRunLists,
	"TestBusyThread":                             TestBusyThread,
	"TestRolledBackRun":                          TestRolledBackRun,
	"TestRolledBackFirstRun":                     TestRolledBackFirstRun,
	"TestCopiedRunSecretIsNotOpened":             TestCopiedRunSecretIsNotOpened,
	"TestAgentSettings":                          TestAgentSettings,
	"TestItems":                                  TestItems,
	"TestItemsExpire":                            TestItemsExpire,
	"TestPagesOfItems":                           TestPagesOfItems,
	"TestVersionsAreBounded":                     TestVersionsAreBounded,
	"TestCrons":                                  TestCrons,
	"TestWebhookMessages":                        TestWebhookMessages,
	"TestRunEndsWithItsMessage":                  TestRunEndsWithItsMessage,
	"TestWebhookSecrets":                         TestWebhookSecrets,
	"TestWebhooksOfATenantAreBounded":            TestWebhooksOfATenantAreBounded,
}

// onlySQLite are those of what only an SQLite file has.
var onlySQLite = []string{"TestDurability", "TestEveryStatementUsesAnIndex", "TestSchema"}

func TestOnPostgreSQL(t *testing.T) {
	newPostgres = postgrestest.New
	postgrestest.New(t) // keeps the server for all subtests
	for _, name := range slices.Sorted(maps.Keys(shared)) {
		t.Run(name, shared[name])
	}
}

// BenchmarkOnPostgreSQL measures without syncs: see postgrestest.
func BenchmarkOnPostgreSQL(b *testing.B) {
	newPostgres = postgrestest.New
	postgrestest.New(b)
	b.Run("Store", BenchmarkStore)
	b.Run("Conversation", BenchmarkConversation)
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
		rows, err := s.reads.RowsOnce(t.Context(), query)
		list, err := engine.Collect(rows, err, func(r engine.Row) (line string, err error) { return line, r.Scan(&line) })
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

// TestCausesOfEarlierSandboxesOnPostgreSQL is TestCausesOfEarlierSandboxes on the
// other database: testdata/sandboxes-7-postgres.sql is a dump of a daemon that was
// killed, without most of its history.
func TestCausesOfEarlierSandboxesOnPostgreSQL(t *testing.T) {
	where := Config{Path: filepath.Join(t.TempDir(), "cubby.db"), URL: postgrestest.New(t)}
	script, err := os.ReadFile("testdata/sandboxes-7-postgres.sql")
	if err != nil {
		t.Fatal(err)
	}
	conn := admin(t, where.URL)
	for _, text := range []string{string(script), strings.Replace(giveATenant, "sandboxes", "public.sandboxes", 1)} {
		if _, err := conn.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	// The data directory that the database belongs to.
	if err := os.WriteFile(filepath.Join(filepath.Dir(where.Path), engine.BindingName), []byte("01m85pxnyxya1pcm8w40fdsjyq\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := make(map[sandbox.ID]sandbox.Cause)
	for what, cause := range map[string]sandbox.Cause{
		"running": sandbox.CauseNone, "stopped": sandbox.CauseRequest, "died": sandbox.CauseDied, "idle": sandbox.CauseIdle,
		"failed": sandbox.CauseUndone, "kept": sandbox.CauseRequest,
	} {
		want[sandbox.ID(what+"-gvisor")], want[sandbox.ID(what+"-container")] = cause, cause
	}
	wantCauses(t, where, "testdata/sandboxes-7-postgres.key", want)
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
