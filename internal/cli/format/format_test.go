package format

import (
	"testing"
	"time"
)

func TestTexts(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct{ what, got, want string }{
		{"age", Age(now.Add(-90*time.Second), now), "90s ago"},
		{"age", Age(now.Add(-3*time.Hour), now), "3h ago"},
		{"age", Age(now.Add(-72*time.Hour), now), "3d ago"},
		{"age", Age(time.Time{}, now), "never"},
		{"size", Size(1023), "1023 B"},
		{"size", Size(1536), "1.5 KiB"},
		{"size", Size(1 << 30), "1 GiB"},
		{"size", Size(1638 << 20), "1.6 GiB"},
		{"seconds", Seconds(1800), "30m0s"},
		{"seconds", Seconds(0), "none"},
		{"printable", Printable("a\x1b[31mb\nc\u0085"), "a?[31mb?c?"},
		{"digest", Digest("0123456789abcdef"), "0123456789ab"},
		{"digest", Digest("0123"), "0123"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.what, tt.got, tt.want)
		}
	}
}
