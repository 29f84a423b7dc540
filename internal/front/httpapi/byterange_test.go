package httpapi

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseRange(t *testing.T) {
	const size = 10
	tests := []struct {
		header         string
		ok, satisfied  bool
		offset, length int64
	}{
		{"bytes=0-4", true, true, 0, 5}, {"bytes=5-", true, true, 5, 5}, {"bytes=-3", true, true, 7, 3}, {"bytes=-30", true, true, 0, 10},
		{"bytes=0-99", true, true, 0, 10}, {"bytes=9-9", true, true, 9, 1}, {"bytes=10-", true, false, 0, 0}, {"bytes=99-100", true, false, 0, 0},
		{"", false, false, 0, 0}, {"bytes=5-4", false, false, 0, 0}, {"bytes=-0", false, false, 0, 0}, {"bytes=a-b", false, false, 0, 0},
		{"bytes=0-1,3-4", false, false, 0, 0}, {"items=0-1", false, false, 0, 0}, {"bytes=-", false, false, 0, 0}, {"bytes=+1-2", false, false, 0, 0},
		{"bytes=99999999999999999999-", false, false, 0, 0},
	}
	for _, tt := range tests {
		r, ok := ParseRange(tt.header)
		if ok != tt.ok {
			t.Errorf("ParseRange(%q) ok = %v, want %v", tt.header, ok, tt.ok)
			continue
		}
		if !ok {
			continue
		}
		offset, length, satisfied := r.Resolve(size)
		if satisfied != tt.satisfied || satisfied && (offset != tt.offset || length != tt.length) {
			t.Errorf("%q of %d bytes = %d+%d %v, want %d+%d %v", tt.header, size, offset, length, satisfied, tt.offset, tt.length, tt.satisfied)
		}
	}
}

func FuzzParseRange(f *testing.F) {
	f.Add("bytes=0-4", int64(10))
	f.Add("bytes=-3", int64(0))
	f.Fuzz(func(t *testing.T, header string, size int64) {
		if size < 0 {
			return
		}
		r, ok := ParseRange(header)
		if !ok {
			return
		}
		if offset, length, ok := r.Resolve(size); ok && (offset < 0 || length <= 0 || offset+length > size) {
			t.Errorf("%q of %d bytes gives %d+%d", header, size, offset, length)
		}
	})
}
