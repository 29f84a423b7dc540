package repair

import (
	"testing"
	"time"
)

// TestDiskThatFailsAgainIsRepairedLessOften: its sandbox is not restarted all the time.
func TestDiskThatFailsAgainIsRepairedLessOften(t *testing.T) {
	var p Pace
	var begun []time.Duration
	for at := time.Duration(0); at < 2*time.Hour; at += time.Second {
		if p.Begin("a", at) {
			begun = append(begun, at)
		}
	}
	if len(begun) < 12 || len(begun) > 20 || begun[0] != 0 || begun[1] != firstPause || begun[2] != 3*firstPause {
		t.Errorf("repaired at %v, want at once, after %s, and less often until every %s", begun, firstPause, lastPause)
	}
	if !p.Begin("b", 0) {
		t.Error("another disk waits for it")
	}
	if at := begun[len(begun)-1] + 2*soundAfter; !p.Begin("a", at) || p.Begin("a", at+firstPause-1) || !p.Begin("a", at+firstPause) {
		t.Error("after it was sound for long it is not repaired as at first")
	}
}
