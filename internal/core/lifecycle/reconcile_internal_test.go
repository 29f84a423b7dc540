package lifecycle

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
