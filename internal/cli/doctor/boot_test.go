package doctor

import "testing"

func TestHostIDs(t *testing.T) {
	for text, want := range map[string]bool{
		"         0          0 4294967295\n":                 true,
		"         0     100000      65536\n":                 false,
		"         0     100000       1000\n      1000 0 1\n": false,
		"": false,
	} {
		if got := hostIDs(text); got != want {
			t.Errorf("hostIDs(%q) = %v", text, got)
		}
	}
}
