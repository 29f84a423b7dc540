package idrange

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
)

// testRanges has n ranges and knows of nobody else on the host.
func testRanges(t *testing.T, lockFile string, n uint64) *Ranges {
	t.Helper()
	r := Open(lockFile, Area{0x7000_0000, 0x7000_0000 + n*Count})
	t.Cleanup(r.Close)
	if r.locks == nil {
		t.Fatalf("%s cannot be made", lockFile)
	}
	r.proc = t.TempDir()
	return r
}

func claim(t *testing.T, r *Ranges) uint32 {
	t.Helper()
	base, err := r.Claim()
	if err != nil {
		t.Fatal(err)
	}
	return base
}

// Two sandboxes got one range when two random numbers were the same.
func TestRangesAreGivenOnce(t *testing.T) {
	r := testRanges(t, filepath.Join(t.TempDir(), "locks"), 8)
	seen := make(map[uint32]bool)
	for range 8 {
		base := claim(t, r)
		if seen[base] || base%Count != 0 {
			t.Errorf("range %#x, given before: %v", base, seen[base])
		}
		seen[base] = true
	}
	if _, err := r.Claim(); !errors.Is(err, errs.Exhausted) {
		t.Errorf("a ninth of eight: %v, want exhausted", err)
	}
	r.Release(0x7003_0000)
	if base := claim(t, r); base != 0x7003_0000 {
		t.Errorf("got %#x, want the one that was given back", base)
	}
}

// The daemons of a host share no state but the locks.
func TestRangesOfTwoDaemons(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run/locks")
	a, b := testRanges(t, file, 2), testRanges(t, file, 2)
	first, second := claim(t, a), claim(t, b)
	if first == second {
		t.Errorf("two daemons have the range %#x", first)
	}
	if _, err := b.Claim(); !errors.Is(err, errs.Exhausted) {
		t.Errorf("a third of two: %v, want exhausted", err)
	}
	if b.Adopt(first) {
		t.Error("a range was adopted that another daemon holds")
	}
	a.Close() // as when it is killed
	if !b.Adopt(first) {
		t.Error("the range of a daemon that is gone cannot be adopted")
	}
}

func TestAreasAreWholeRanges(t *testing.T) {
	for _, a := range areas {
		if a.First%Count != 0 || a.End%Count != 0 || a.First < 0x2000_0000 || a.End > 0x7fff_0000 || a.First >= a.End {
			t.Errorf("%#x to %#x", a.First, a.End)
		}
	}
}
