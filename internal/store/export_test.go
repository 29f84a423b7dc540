package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestExports(t *testing.T) {
	s, c := fresh(t)
	a, b := create(t, s, box("a")), create(t, s, box("b"))
	add := func(uid sandbox.UID, exports ...Export) error { return s.AddExports(t.Context(), uid, exports) }
	list := func(uid sandbox.UID) []Export {
		t.Helper()
		exports, err := s.Exports(t.Context(), uid)
		if err != nil {
			t.Fatal(err)
		}
		return exports
	}
	at := c.Now()
	file := Export{Path: "/workspace/z", Kind: sandbox.RegularFile, Size: 3, At: at}
	dir := Export{Path: "/workspace/A", Kind: sandbox.Directory, Size: 9, At: at}
	wantKind(t, "AddExports", add(a.UID, file, dir), nil)
	wantKind(t, "AddExports of another", add(b.UID, file), nil)
	file.Size, file.At = 4, at.Add(time.Second)
	wantKind(t, "AddExports again", add(a.UID, file), nil)
	if diff := cmp.Diff([]Export{dir, file}, list(a.UID)); diff != "" {
		t.Errorf("Exports (-want +got):\n%s", diff)
	}
	if e, err := s.Export(t.Context(), a.UID, dir.Path); e != dir || err != nil {
		t.Errorf("Export = %+v, %v", e, err)
	}
	_, err := s.Export(t.Context(), a.UID, "/workspace/a")
	wantKind(t, "Export of what is not exported", err, errs.NotFound)

	many := make([]Export, maxExports)
	for i := range many {
		many[i] = Export{Path: fmt.Sprint("/workspace/", i)}
	}
	wantKind(t, "AddExports of too many", add(a.UID, many...), errs.TooLarge)
	if n := len(list(a.UID)); n != 2 {
		t.Errorf("%d exports after a refused call, want 2", n)
	}

	wantKind(t, "AddExports of nobody", add(sandbox.NewUID(), file), errs.NotFound)
	move(t, s, a.UID, sandbox.Stopped, Change{Why: asked})
	if n := len(list(a.UID)); n != 2 {
		t.Errorf("%d exports of a stopped sandbox, want 2", n)
	}
	move(t, s, a.UID, sandbox.Destroyed, Change{})
	if n := len(list(a.UID)); n != 0 {
		t.Errorf("%d exports of a destroyed sandbox", n)
	}
	wantKind(t, "AddExports of a destroyed one", add(a.UID, file), errs.WrongState)
	if n := len(list(b.UID)); n != 1 {
		t.Errorf("%d exports of the other sandbox, want 1", n)
	}
}

func TestThreads(t *testing.T) {
	s, c := fresh(t)
	in := func(id, tenant, thread string) sandbox.Sandbox {
		b := box(id)
		b.Tenant, b.Spec.Thread = tenant, thread
		return create(t, s, b)
	}
	first := c.Now()
	a := in("a", "acme", "t")
	in("b", "acme", "t")
	in("c", "acme", "u")
	in("d", "evil", "t")
	in("e", "acme", "")
	gone := in("f", "acme", "gone")
	move(t, s, gone.UID, sandbox.Destroyed, Change{})
	move(t, s, a.UID, sandbox.Stopped, Change{Why: asked})
	last := first.Add(time.Hour)
	if err := s.Touch(t.Context(), a.UID, last); err != nil {
		t.Fatal(err)
	}

	threads, err := s.Threads(t.Context(), "acme")
	if err != nil || len(threads) != 2 {
		t.Fatalf("Threads = %+v, %v", threads, err)
	}
	got := threads[0]
	want := Thread{Tenant: "acme", Name: "t", Sandboxes: 2, Running: 1, CreatedAt: a.CreatedAt, LastActiveAt: last}
	if diff := cmp.Diff(want, got); diff != "" || threads[1].Name != "u" {
		t.Errorf("Threads = %+v (-want +got):\n%s", threads, diff)
	}
	if all, err := s.AllThreads(t.Context()); err != nil || len(all) != 3 {
		t.Errorf("AllThreads = %+v, %v", all, err)
	}

	tenant := "acme"
	items, _, err := s.Sandboxes(t.Context(), Query{Tenant: &tenant, Thread: "t"})
	if err != nil || len(items) != 2 || items[0].ID != "b" || items[1].ID != "a" {
		t.Errorf("Sandboxes of a thread = %+v, %v", items, err)
	}
	if items, _, err := s.Sandboxes(t.Context(), Query{Thread: "gone"}); err != nil || len(items) != 0 {
		t.Errorf("Sandboxes of a thread that is gone = %+v, %v", items, err)
	}
}
