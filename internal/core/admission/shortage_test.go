package admission

import "testing"

func TestDecideShortage(t *testing.T) {
	const reserve = 1 << 30
	tests := []struct {
		name    string
		free    int64
		reserve int64
		want    Shortage
	}{
		{"no reserve", 0, 0, NoShortage},
		{"much", 64 << 30, reserve, NoShortage},
		{"room for one more", reserve + BootMemory, reserve, NoShortage},
		{"too little for one more", reserve + BootMemory - 1, reserve, Short},
		{"half", reserve / 2, reserve, Short},
		{"less than half", reserve/2 - 1, reserve, Dire},
		{"none", 0, reserve, Dire},
		{"less than none", -reserve, reserve, Dire}, // much comes up
	}
	for _, tt := range tests {
		if got := DecideShortage(tt.free, tt.reserve); got != tt.want {
			t.Errorf("%s: DecideShortage(%d, %d) = %d, want %d", tt.name, tt.free, tt.reserve, got, tt.want)
		}
	}
}
