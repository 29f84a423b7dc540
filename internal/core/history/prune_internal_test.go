package history

import (
	"testing"
	"time"
)

func TestDecidePrune(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name        string
		retention   time.Duration
		now, steady time.Time
		want        time.Time
	}{
		{"for ever", 0, noon, noon, time.Time{}},
		{"in order", time.Hour, noon, noon, noon.Add(-time.Hour)},
		{"the clock stepped forth", time.Hour, noon.Add(9000 * time.Hour), noon, noon.Add(-time.Hour)},
		{"the clock stepped back", time.Hour, noon.Add(-5 * time.Hour), noon, noon.Add(-6 * time.Hour)},
	}
	for _, tt := range tests {
		got, ok := decidePrune(tt.retention, tt.now, tt.steady)
		if ok == tt.want.IsZero() || !got.Equal(tt.want) {
			t.Errorf("%s: decidePrune = %s, %v, want %s", tt.name, got, ok, tt.want)
		}
	}
}
