package activity

import (
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestUnusedAtReturn(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name    string
		timeout time.Duration
		ago     time.Duration
		want    time.Duration
	}{
		{"just used", time.Hour, 0, 0},
		{"used a while ago", time.Hour, 10 * time.Minute, 10 * time.Minute},
		{"the daemon was away for a day", time.Hour, 24 * time.Hour, 59 * time.Minute},
		{"a short timeout", 10 * time.Second, time.Hour, 0},
		{"the clock stepped back", time.Hour, -5 * time.Hour, 0},
		{"no timeout", 0, 24 * time.Hour, 24 * time.Hour},
	}
	for _, tt := range tests {
		if got := unusedAtReturn(sandbox.Spec{IdleTimeout: tt.timeout}, now, now.Add(-tt.ago)); got != tt.want {
			t.Errorf("%s: unusedAtReturn = %s, want %s", tt.name, got, tt.want)
		}
	}
}
