package telemetry_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/telemetry"
)

// TestWarningOfALoopIsBounded: what fails ten times a second is logged a few times.
func TestWarningOfALoopIsBounded(t *testing.T) {
	var log bytes.Buffer
	now := time.Unix(0, 0)
	troubles := telemetry.NewTroubles(slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return now })
	lines := func() int { return strings.Count(log.String(), "\n") }
	for range 10 * 60 * 60 * 10 {
		troubles.Note("it fails", "a", errors.New("full"))
		now = now.Add(time.Second / 10)
	}
	if n := lines(); n < 10 || n > 20 {
		t.Errorf("in ten hours it is logged %d times, want at its begin and after pauses of up to an hour", n)
	}
	for i := range 3000 {
		troubles.Note("it fails", "of many "+strconv.Itoa(i), errors.New("full"))
	}
	now = now.Add(3 * time.Hour) // they are not met again
	for _, tt := range []struct {
		what string
		note func()
	}{
		{"another error", func() { troubles.Note("it fails", "a", errors.New("broken")) }},
		{"another subject", func() { troubles.Note("it fails", "b", errors.New("full")) }},
		{"after a success", func() {
			troubles.Note("it fails", "a", nil)
			troubles.Note("it fails", "a", errors.New("broken"))
		}},
		{"after it was forgotten", func() {
			troubles.Forget("b")
			troubles.Note("it fails", "b", errors.New("full"))
		}},
	} {
		before := lines()
		tt.note()
		if n := lines() - before; n != 1 {
			t.Errorf("%s: logged %d times, want once", tt.what, n)
		}
	}
}
