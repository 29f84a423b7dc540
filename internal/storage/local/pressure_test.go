package local

import (
	"testing"
	"time"
)

// TestTheHostIsLookedAtInTime: before the fastest disk can have written what is
// left, or as often as there is a look at all.
func TestTheHostIsLookedAtInTime(t *testing.T) {
	lefts := []int64{-1 << 40, 0}
	for left := int64(1); left <= 1<<50; left *= 2 {
		lefts = append(lefts, left)
	}
	before := time.Duration(0)
	for _, left := range lefts {
		d := pause(left)
		if d < tenseInterval || d > calmInterval || d < before {
			t.Errorf("pause(%d) = %v after %v", left, d, before)
		}
		if d > tenseInterval && int64(d.Seconds()*fastest) > left+1 {
			t.Errorf("pause(%d) = %v, in which a disk writes more", left, d)
		}
		before = d
	}
	if before != calmInterval {
		t.Errorf("with a petabyte left the pause is %v", before)
	}
}
