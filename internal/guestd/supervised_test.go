package guestd

import (
	"slices"
	"testing"
	"time"
)

// The host is asked for trees that the agent has been killing for a while, and
// told whom to spare.
func TestUnkilledTrees(t *testing.T) {
	s := &supervisors{live: map[int]bool{7: true, 8: true}}
	v := &supervisor{pool: s, pid: 7}
	tree := &supervised{by: v, empty: make(chan struct{})}
	v.job = tree
	if trees, _ := s.unkilled(0); len(trees) != 0 {
		t.Errorf("%d trees, and nobody kills one", len(trees))
	}
	s.killing.add(tree)
	if trees, _ := s.unkilled(time.Hour); len(trees) != 0 {
		t.Errorf("%d trees before their time", len(trees))
	}
	trees, spare := s.unkilled(0)
	if !slices.Contains(trees, tree) || !slices.Equal(spare, []int64{8}) {
		t.Errorf("trees %v, spare %v; want the one that is killed and the other supervisor", trees, spare)
	}
	if s.doomed.waiting() == nil {
		t.Error("supervisors may be started meanwhile")
	}
	tree.settle()
	if trees, _ := s.unkilled(0); len(trees) != 0 || s.doomed.waiting() != nil {
		t.Error("it is still there after its end")
	}
}
