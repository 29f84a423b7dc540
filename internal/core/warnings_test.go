package core_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/snapshot"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// warner is a driver in whose copies a program has the state of its parent's.
type warner struct{ driver.Driver }

func (w warner) Unwrap() driver.Driver { return w.Driver }

func (w warner) Identify(ctx context.Context, h driver.Handle, is driver.Identity) (driver.Identified, error) {
	got, err := w.Driver.Identify(ctx, h, is)
	got.Warnings = []string{"a program, \"dice\"\nof " + is.ID, "its session"}
	return got, err
}

// TestWhateverBeginsFromAMemoryIsWarned: a create, its repeat after a restart too, a
// rollback and a fork. Nobody else is, and nobody later.
func TestWhateverBeginsFromAMemoryIsWarned(t *testing.T) {
	w := newWorld(t, func(c *core.Config) { c.Driver = warner{c.Driver} })
	said := func(what string, b sandbox.Sandbox, err error) {
		t.Helper()
		if want := []string{fmt.Sprintf("a program, \"dice\"\nof %s", b.ID), "its session"}; err != nil || !slices.Equal(b.Warnings, want) {
			t.Errorf("%s: warnings %q, %v, want %q", what, b.Warnings, err, want)
		}
	}
	silent := func(what string, b sandbox.Sandbox, err error) {
		t.Helper()
		if err != nil || len(b.Warnings) != 0 {
			t.Errorf("%s: warnings %q, %v, want none", what, b.Warnings, err)
		}
	}
	a, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a", IdempotencyKey: "cold"})
	silent("a create of nothing", a, err)
	w.keep("a", "point")

	from := lifecycle.CreateRequest{ID: "b", Snapshot: "point", IdempotencyKey: "from"}
	b, err := w.Sandboxes().Create(w.ctx, from)
	said("a create from a memory", b, err)
	b, err = w.Sandboxes().Get(w.ctx, "b")
	silent("a later look", b, err)
	w.restart()
	b, err = w.Sandboxes().Create(w.ctx, from)
	said("a repeated create from a memory", b, err)
	a, err = w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a", IdempotencyKey: "cold"})
	silent("a repeated create of nothing", a, err)

	a, err = w.Snapshots().Rollback(w.ctx, "a", "point")
	said("a rollback to a memory", a, err)
	forked, err := w.Snapshots().Fork(w.ctx, "a", 2, []string{"c", "d"})
	want := []string{"a program, \"dice\"\nof c", "a program, \"dice\"\nof d", "its session"}
	if err != nil || !slices.Equal(forked.Warnings, want) {
		t.Errorf("a fork: warnings %q, %v, want %q", forked.Warnings, err, want)
	}

	w.halt("a")
	if _, _, err := w.Snapshots().Create(w.ctx, snapshot.Request{Source: "a", Name: "files"}); err != nil {
		t.Fatal(err)
	}
	b, err = w.from("e", "files")
	silent("a create from files", b, err)
	a, err = w.Snapshots().Rollback(w.ctx, "a", "files")
	silent("a rollback to files", a, err)
}
