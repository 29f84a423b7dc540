package image

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

// TestLooksOfOtherProcessesCount: for as long as was said, on the same boot, for
// the same image, and for those alone who said so.
func TestLooksOfOtherProcessesCount(t *testing.T) {
	start := time.Now()
	tests := []struct {
		name   string
		counts time.Duration
		later  time.Duration
		change func(text string) string // of what the look left
		found  bool                     // what was damaged after the look
	}{
		{name: "at once", counts: time.Hour, later: time.Second},
		{name: "at its end", counts: time.Hour, later: time.Hour, found: true},
		{name: "a clock that was set back", counts: time.Hour, later: -time.Second, found: true},
		{name: "a process that looks itself", later: time.Second, found: true},
		{name: "another boot", counts: time.Hour, found: true, change: func(text string) string { return strings.ReplaceAll(text, boot(), "another") }},
		{name: "no boot", counts: time.Hour, found: true, change: func(text string) string { return strings.ReplaceAll(text, boot(), "") }},
		{name: "cut off", counts: time.Hour, found: true, change: func(text string) string { return text[:len(text)/2] }},
		{name: "nothing", counts: time.Hour, found: true, change: func(string) string { return "" }},
		{name: "an image that was made anew", counts: time.Hour, found: true, change: func(text string) string {
			return strings.Replace(text, `"stamp":"`, `"stamp":"0`, 1)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			open := func(counts, later time.Duration) *Store {
				s := openStore(t, dir)
				s.now = func() time.Time { return start.Add(later) }
				s.LooksCount(counts)
				return s
			}
			s := open(time.Hour, 0)
			img := importRoot(t, s, "one", "1")
			if _, err := open(time.Hour, 0).Resolve(t.Context(), "one"); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(filepath.Join(img.Dir, "usr/bin/sh"), 0); err != nil {
				t.Fatal(err)
			}
			left := filepath.Join(s.dir, img.Digest, lookedName)
			if tt.change != nil {
				text, err := os.ReadFile(left)
				if err == nil {
					err = os.WriteFile(left, []byte(tt.change(string(text))), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			_, err := open(tt.counts, tt.later).Resolve(t.Context(), "one")
			if found := errors.Is(err, errs.Unavailable); found != tt.found || err != nil && !found {
				t.Errorf("Resolve = %v, want damage found: %v", err, tt.found)
			}
			// What is imported again was not looked at.
			if again := importRoot(t, open(time.Hour, 2*time.Hour), "one", "1"); again.Damaged {
				t.Errorf("importing again = %+v", again)
			}
		})
	}
}

// TestALookThatCountsForNobodyIsNotKept: an image directory is as it was.
func TestALookThatCountsForNobodyIsNotKept(t *testing.T) {
	s := openStore(t, t.TempDir())
	img := importRoot(t, s, "one", "1")
	if _, err := openStore(t, s.dir).Resolve(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(s.dir, img.Digest, lookedName)); !os.IsNotExist(err) {
		t.Errorf("%s = %v, want none", lookedName, err)
	}
}
