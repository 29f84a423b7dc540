package procstat

import "testing"

func TestStat(t *testing.T) {
	const stat = "42 (a) R) Z 1 42 42 0 -1 4194560 100 200 0 0 1 2 3 4 20 0 1 0 777 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 9\n"
	if got, err := StartTime([]byte(stat)); err != nil || got != 777 {
		t.Errorf("StartTime = %d, %v; want 777", got, err)
	}
	if got := CPUTime([]byte(stat)).Milliseconds(); got != 100 {
		t.Errorf("CPUTime = %d ms, want 100", got)
	}
	if Lives(Fields([]byte(stat))) {
		t.Error("a zombie lives")
	}
}

func FuzzStat(f *testing.F) {
	f.Add([]byte("42 (sh) S 1 42 42 0 -1 4194560 100 200 0 0 1 2 3 4 20 0 1 0 777 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 9\n"))
	f.Add([]byte("42 (a) b) S) Z 1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = StartTime(data)
		_ = Lives(Fields(data))
		if d := CPUTime(data); d < 0 && len(data) < 60 {
			t.Errorf("CPUTime(%q) = %v", data, d)
		}
	})
}
