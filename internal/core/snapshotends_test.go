package core_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/cubbyhq/cubby/internal/core/snapshot"
)

// endsWhen is a context that is over as soon as a condition holds.
type endsWhen struct {
	context.Context
	over func() bool
}

func (c endsWhen) Err() error {
	if c.over() {
		return context.Canceled
	}
	return c.Context.Err()
}

func (c endsWhen) Done() <-chan struct{} {
	if c.over() {
		done := make(chan struct{})
		close(done)
		return done
	}
	return c.Context.Done()
}

// TestASnapshotWhoseCallerGoesAsItIsReadyIsMade: else its name is taken by one that
// the answer said is not kept.
func TestASnapshotWhoseCallerGoesAsItIsReadyIsMade(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	db, err := sql.Open("sqlite", "file:"+filepath.Join(w.dir, "cubby.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ready := func() bool {
		var n int
		err := db.QueryRow(`SELECT COUNT(*) FROM snapshots WHERE state = 'ready'`).Scan(&n)
		return err == nil && n > 0
	}
	n, _, err := w.Snapshots().Create(endsWhen{w.ctx, ready}, snapshot.Request{Source: "a", Name: "point", Memory: true})
	if err != nil || n.Name != "point" {
		t.Errorf("Create = %+v, %v", n, err)
	}
	if _, err := w.from("b", "point"); err != nil {
		t.Errorf("a create from it: %v", err)
	}
}
