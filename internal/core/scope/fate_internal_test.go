package scope

import (
	"testing"
	"time"
)

func TestAgo(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "just now", 0: "just now", 999 * time.Millisecond: "just now", time.Second: "1 second ago", 59 * time.Second: "59 seconds ago",
		3*time.Minute + 59*time.Second: "3 minutes ago", time.Hour: "1 hour ago", 47 * time.Hour: "1 day ago", 48 * time.Hour: "2 days ago",
	} {
		if got := ago(d); got != want {
			t.Errorf("ago(%s) = %q, want %q", d, got, want)
		}
	}
}
