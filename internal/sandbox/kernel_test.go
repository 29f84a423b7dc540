package sandbox_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestListsHoldTheBeginningOfLongCode(t *testing.T) {
	for _, code := range []string{"", "1+1", strings.Repeat("é", 2048)} {
		x := sandbox.Exec{Spec: sandbox.ExecSpec{Cell: &sandbox.Cell{Kernel: "k", Code: code}}}
		if got := x.Listed(); got.Spec.Cell != x.Spec.Cell {
			t.Errorf("code of %d bytes is listed as %.20q", len(code), got.Spec.Cell.Code)
		}
	}
	long := "x" + strings.Repeat("é", 100_000)
	x := sandbox.Exec{Spec: sandbox.ExecSpec{Cell: &sandbox.Cell{Kernel: "k", Code: long}}}
	got := x.Listed().Spec.Cell
	if begin, ok := strings.CutSuffix(got.Code, "…"); !ok || !strings.HasPrefix(long, begin) || len(begin) > 4096 || !utf8.ValidString(begin) || got.Kernel != "k" {
		t.Errorf("long code is listed as %d bytes, %.20q", len(got.Code), got.Code)
	}
	if x.Spec.Cell.Code != long {
		t.Error("the exec itself was changed")
	}
	if got := (sandbox.Exec{Spec: sandbox.ExecSpec{Shell: "true"}}).Listed(); got.Spec.Cell != nil {
		t.Errorf("a command became %+v", got.Spec)
	}
}
