package live

import "testing"

func TestParseSignal(t *testing.T) {
	for _, name := range []string{"SIGINT", "INT", "int", "sigint"} {
		if sig, err := parseSignal(name); err != nil || sig != 2 {
			t.Errorf("parseSignal(%q) = %d, %v, want 2", name, sig, err)
		}
	}
	for _, name := range []string{"", "SIG", "9", "SIGNOPE", "SIGSIGINT"} {
		if sig, err := parseSignal(name); err == nil {
			t.Errorf("parseSignal(%q) = %d, want an error", name, sig)
		}
	}
}
