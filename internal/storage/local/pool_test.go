package local

import "testing"

// Creates that follow each other must not keep the pool from being filled once
// it has nothing left for one of them.
func TestPoolIsDry(t *testing.T) {
	tests := []struct {
		name string
		p    pool
		want bool
	}{
		{"nothing is asked for", pool{}, false},
		{"one of each size", pool{demand: []int64{1, 2}, ready: map[int64][]string{1: {"a"}, 2: {"b"}}}, false},
		{"a size has none", pool{demand: []int64{1, 2}, ready: map[int64][]string{1: {"a"}}}, true},
		{"a size that nobody asks for", pool{demand: []int64{1}, ready: map[int64][]string{2: {"b"}}}, true},
	}
	for i := range tests {
		tt := &tests[i]
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.p.dry(); got != tt.want {
				t.Errorf("dry = %t, want %t", got, tt.want)
			}
		})
	}
}
