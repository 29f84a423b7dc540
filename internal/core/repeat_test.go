package core_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/snapshot"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// imagesGone has images until it has none.
type imagesGone struct {
	*images
	gone *bool
}

func (i imagesGone) Resolve(ctx context.Context, name string) (image.Image, error) {
	if *i.gone {
		return image.Image{}, errs.E(errs.Unavailable, "the images cannot be read")
	}
	return i.images.Resolve(ctx, name)
}

// TestARepeatedCreateIsAnsweredAlthoughWhatItNamesIsGone repeats creates with an
// idempotency key when they could no longer be carried out.
func TestARepeatedCreateIsAnsweredAlthoughWhatItNamesIsGone(t *testing.T) {
	gone, host := false, int64(64<<30)
	w := newWorld(t, func(c *core.Config) {
		c.Images = imagesGone{c.Images.(*images), &gone}
		c.Sandboxes.Host.MemoryBytes = host
	})
	w.create("a")
	w.keep("a", "point")
	w.halt("a")
	files, _, err := w.Snapshots().Create(w.ctx, snapshot.Request{Source: "a", Name: "files"})
	if err != nil {
		t.Fatal(err)
	}
	requests := map[string]lifecycle.CreateRequest{
		"a snapshot with memory": {Snapshot: "point"},
		"a snapshot of files":    {Snapshot: string(files.UID)},
		"a preferred image":      {Prefer: "base"},
		"a large host":           {Spec: sandbox.Spec{Limits: sandbox.Limits{MemoryBytes: 32 << 30}}},
	}
	firsts := map[string]sandbox.UID{}
	for what, r := range requests {
		r.IdempotencyKey = what
		b, err := w.Sandboxes().Create(w.ctx, r)
		if err != nil {
			t.Fatalf("%s: Create = %v", what, err)
		}
		firsts[what] = b.UID
	}
	for _, name := range []string{"point", "files"} {
		if err := w.Snapshots().Remove(w.ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	w.stop()
	gone, host = true, 8<<30
	w.driverOfNext()
	w.open()
	w.start()
	for what, r := range requests {
		if b, err := w.Sandboxes().Create(w.ctx, r); err == nil {
			t.Errorf("%s: a create without the key made %s, want an error: the test tests nothing", what, b.ID)
		}
		r.IdempotencyKey = what
		if b, err := w.Sandboxes().Create(w.ctx, r); err != nil || b.UID != firsts[what] {
			t.Errorf("%s: the repeated Create = %s, %v, want %s", what, b.UID, err, firsts[what])
		}
	}
}

// TestARefusedCreateFreesItsIdempotencyKey: what a request names comes to be, and
// its repeat is carried out.
func TestARefusedCreateFreesItsIdempotencyKey(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	r := lifecycle.CreateRequest{Snapshot: "point", IdempotencyKey: "k"}
	if _, err := w.Sandboxes().Create(w.ctx, r); !errors.Is(err, errs.NotFound) {
		t.Fatalf("Create from a snapshot that is not there = %v, want not found", err)
	}
	w.keep("a", "point")
	if b, err := w.Sandboxes().Create(w.ctx, r); err != nil || b.State != sandbox.Running {
		t.Errorf("the repeated Create = %s, %v, want a sandbox that runs", b.State, err)
	}
}
