package hostdisk

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
)

func TestReserve(t *testing.T) {
	for _, tt := range []struct{ total, set, want int64 }{
		{total: 100 << 30, want: 5 << 30},
		{total: 2 << 30, want: 1 << 30},
		{total: 100 << 30, set: 40 << 30, want: 40 << 30},
		{total: 100 << 30, set: 1, want: 1},
	} {
		if got := (Space{Total: tt.total}).Reserve(tt.set); got != tt.want {
			t.Errorf("the reserve of %d, set to %d, is %d, want %d", tt.total, tt.set, got, tt.want)
		}
	}
}

func TestMeasure(t *testing.T) {
	s, err := Measure(t.TempDir())
	if err != nil || s.Total <= 0 || s.Free < 0 || s.Free > s.Total {
		t.Errorf("Measure = %+v, %v", s, err)
	}
	if _, err := Measure(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Measure of none = %v, want that it is not there", err)
	}
}
