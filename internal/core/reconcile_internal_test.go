package core

import (
	"slices"
	"testing"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestOrphans(t *testing.T) {
	got := orphans([]sandbox.UID{"a", "b", "c"}, map[sandbox.UID]bool{"b": true})
	if want := []sandbox.UID{"a", "c"}; !slices.Equal(got, want) {
		t.Errorf("orphans = %v, want %v", got, want)
	}
	if got := orphans(nil, nil); len(got) != 0 {
		t.Errorf("orphans of nothing = %v", got)
	}
}

func TestParseSignal(t *testing.T) {
	for _, name := range []string{"SIGINT", "INT", "int", "sigint"} {
		if sig, err := parseSignal(name); err != nil || sig != 2 {
			t.Errorf("parseSignal(%q) = %d, %v, want 2", name, sig, err)
		}
	}
	for _, name := range []string{"", "SIG", "9", "SIGNOPE", "SIGSIGINT"} {
		if sig, err := parseSignal(name); err == nil {
			t.Errorf("parseSignal(%q) = %d, want an error", name, sig)
		}
	}
}
