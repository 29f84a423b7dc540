package kernels

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/kernel"
)

func TestDifference(t *testing.T) {
	text := func(s string) *string { return &s }
	for _, tt := range []struct {
		name     string
		from, to []string
		want     map[string]kernel.Variable
		start    bool
	}{
		{"none", []string{"A=1", "B="}, []string{"B=", "A=1"}, map[string]kernel.Variable{}, false},
		{"all", []string{"A=1", "B=1", "C=1"}, []string{"A=1", "B=2=3", "D="}, map[string]kernel.Variable{
			"B": {Old: text("1"), New: text("2=3")}, "C": {Old: text("1")}, "D": {New: text("")},
		}, false},
		{"what interpreters read", nil, []string{"PYTHONPATH=/x"}, map[string]kernel.Variable{"PYTHONPATH": {New: text("/x")}}, true},
		{"what libraries read", []string{"OMP_NUM_THREADS=1"}, nil, map[string]kernel.Variable{"OMP_NUM_THREADS": {Old: text("1")}}, true},
	} {
		got := difference(tt.from, tt.to)
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s: %s", tt.name, d)
		}
		if start := readAtStart(got); start != tt.start {
			t.Errorf("%s: readAtStart = %t", tt.name, start)
		}
	}
}
