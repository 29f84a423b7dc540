//go:build root

package core_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/core/cell"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestCompletion(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	at := func(code string, cursor ...int) cell.Position {
		p := cell.Position{Code: code}
		if len(cursor) > 0 {
			p.Cursor = &cursor[0]
		}
		return p
	}
	if _, err := w.Kernels().Complete(w.ctx, "a", "python", at("x")); !errors.Is(err, errs.NotFound) || errs.Public(err).Hint == "" {
		t.Errorf("without a kernel: %v", err)
	}
	w.python("a", "def greet(name):\n    'Says hello.'\ngröße = 'x'")
	got, err := w.Kernels().Complete(w.ctx, "a", "python", at("größe; gre + 1", 10))
	if err != nil || !slices.Contains(got.Matches.Texts, "greet") || got.Start != 7 || got.End != 10 {
		t.Errorf("CompleteCode = %+v, %v", got, err)
	}
	if got, err := w.Kernels().Complete(w.ctx, "a", "python", at("größe.starts")); err != nil || !slices.Contains(got.Matches.Texts, "startswith") || got.End != 12 {
		t.Errorf("at the end: %+v, %v", got, err)
	}
	info, err := w.Kernels().Inspect(w.ctx, "a", "python", at("greet("), 0)
	if err != nil || !info.Found || !strings.Contains(info.Data["text/plain"], "Says hello.") || strings.Contains(info.Data["text/plain"], "\x1b") {
		t.Errorf("InspectCode = %+v, %v", info, err)
	}
	if check, err := w.Kernels().Check(w.ctx, "a", "python", "for x in y:"); err != nil || check.Status != "incomplete" || check.Indent != "    " {
		t.Errorf("CheckCode = %+v, %v", check, err)
	}
	for name, err := range map[string]error{
		"a cursor beyond the code": errOf(w.Kernels().Complete(w.ctx, "a", "python", at("größe", 6))),
		"a cursor before it":       errOf(w.Kernels().Inspect(w.ctx, "a", "python", at("x", -1), 0)),
		"a level of detail":        errOf(w.Kernels().Inspect(w.ctx, "a", "python", at("x"), 2)),
		"a name":                   errOf(w.Kernels().Check(w.ctx, "a", "../x", "x")),
		"no UTF-8":                 errOf(w.Kernels().Check(w.ctx, "a", "python", "\xff")),
	} {
		if !errors.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.Kernels().Check(w.ctx, "a", "python", strings.Repeat(" ", sandbox.MaxCode+1)); !errors.Is(err, errs.TooLarge) {
		t.Errorf("long code: %v", err)
	}

	// Cells go first, and a question is none: it has no number.
	hold, open := held(t)
	x := w.startCode("a", cell.Request{Code: hold})
	w.says("a", x.Seq, "ready")
	if _, err := w.Kernels().Check(w.ctx, "a", "python", "1"); !errors.Is(err, errs.WrongState) || errs.Public(err).Hint == "" {
		t.Errorf("of a kernel that is busy: %v", err)
	}
	open()
	if x = w.wait("a", x.Seq); x.Seq != 2 {
		t.Errorf("the second cell is number %d", x.Seq)
	}
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Kernels().Check(w.ctx, "a", "python", "1"); !errors.Is(err, errs.WrongState) {
		t.Errorf("of a sandbox that does not run: %v", err)
	}
}

func errOf[T any](_ T, err error) error { return err }
