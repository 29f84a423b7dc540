package oci

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
)

// testRanges has n ranges and knows of nobody else on the host.
func testRanges(t *testing.T, lockFile string, n uint64) *idRanges {
	t.Helper()
	r := openIDRanges(lockFile)
	t.Cleanup(r.close)
	if r.locks == nil {
		t.Fatalf("%s cannot be made", lockFile)
	}
	r.areas = []idArea{{0x7000_0000, 0x7000_0000 + n*idCount}}
	r.reserved, r.proc = nil, t.TempDir()
	return r
}

func claim(t *testing.T, r *idRanges) uint32 {
	t.Helper()
	base, err := r.claim()
	if err != nil {
		t.Fatal(err)
	}
	return base
}

// Two sandboxes got one range when two random numbers were the same.
func TestIDRangesAreGivenOnce(t *testing.T) {
	r := testRanges(t, filepath.Join(t.TempDir(), "locks"), 8)
	seen := make(map[uint32]bool)
	for range 8 {
		base := claim(t, r)
		if seen[base] || base%idCount != 0 {
			t.Errorf("range %#x, given before: %v", base, seen[base])
		}
		seen[base] = true
	}
	if _, err := r.claim(); !errors.Is(err, errs.Exhausted) {
		t.Errorf("a ninth of eight: %v, want exhausted", err)
	}
	r.release(0x7003_0000)
	if base := claim(t, r); base != 0x7003_0000 {
		t.Errorf("got %#x, want the one that was given back", base)
	}
}

// The daemons of a host share no state but the locks.
func TestIDRangesOfTwoDaemons(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run/locks")
	a, b := testRanges(t, file, 2), testRanges(t, file, 2)
	first, second := claim(t, a), claim(t, b)
	if first == second {
		t.Errorf("two daemons have the range %#x", first)
	}
	if _, err := b.claim(); !errors.Is(err, errs.Exhausted) {
		t.Errorf("a third of two: %v, want exhausted", err)
	}
	if b.adopt(first) {
		t.Error("a range was adopted that another daemon holds")
	}
	a.close() // as when it is killed
	if !b.adopt(first) {
		t.Error("the range of a daemon that is gone cannot be adopted")
	}
}

func TestIDAreasAreWholeRanges(t *testing.T) {
	for _, a := range idAreas {
		if a.first%idCount != 0 || a.end%idCount != 0 || a.first < 0x2000_0000 || a.end > 0x7fff_0000 || a.first >= a.end {
			t.Errorf("%#x to %#x", a.first, a.end)
		}
	}
}
