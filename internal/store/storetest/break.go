// Package storetest makes databases for tests of what stands above a store, and
// single writes of theirs fail. It is for tests only.
package storetest

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
)

// Message is what a broken write fails with, somewhere in its error.
const Message = "broken by a test"

// Break makes a write of the SQLite database at path fail from now on: write is
// as in "INSERT ON events" or "UPDATE OF state ON sandboxes", and when, if not
// empty, a condition on NEW that says which rows. The returned function mends
// it.
func Break(t testing.TB, path, write, when string) (mend func()) {
	t.Helper()
	name := "broken_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r
		}
		return '_'
	}, strings.ToLower(write+when))
	if when != "" {
		when = "WHEN " + when
	}
	return change(t, path,
		fmt.Sprintf(`CREATE TRIGGER %s BEFORE %s %s BEGIN SELECT RAISE(ABORT, '%s'); END`, name, write, when, Message),
		"DROP TRIGGER "+name)
}

// Hide makes every read and write of a table fail from now on. The returned function
// mends it.
func Hide(t testing.TB, path, table string) (mend func()) {
	t.Helper()
	return change(t, path, "ALTER TABLE "+table+" RENAME TO hidden_"+table, "ALTER TABLE hidden_"+table+" RENAME TO "+table)
}

// HideAll makes every read and write of every table fail from now on, as if the
// database were away. The returned function mends it.
func HideAll(t testing.TB, path string) (mend func()) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(30000)")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	rows, err := db.Query(`SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'goose_%' ORDER BY name`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	hide, show := "BEGIN IMMEDIATE;", "BEGIN IMMEDIATE;"
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		hide += "ALTER TABLE " + name + " RENAME TO hidden_" + name + ";"
		show += "ALTER TABLE hidden_" + name + " RENAME TO " + name + ";"
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return change(t, path, hide+"COMMIT", show+"COMMIT")
}

// change changes the database at path, and back.
func change(t testing.TB, path, statement, back string) (mend func()) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(30000)")
	if err != nil {
		t.Fatal(err)
	}
	do := func(statement string) {
		t.Helper()
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	do(statement)
	return func() {
		t.Helper()
		do(back)
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
