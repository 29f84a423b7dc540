package prompt

import "testing"

func TestLeavingThePrompt(t *testing.T) {
	for _, tt := range []struct {
		language, code string
		want           bool
	}{
		{"python", "exit", true}, {"python", " exit() ", true}, {"python", "quit()", true}, {"python", "exit = 1", false},
		{"python", "print(exit)", false}, {"node", ".exit", true}, {"node", "process.exit();", true}, {"r", "q()", true}, {"r", "q", true},
		{"bash", "exit", true}, {"julia", "exit", true}, {"julia", "x", false},
	} {
		if got := leaves(tt.language, tt.code); got != tt.want {
			t.Errorf("leaves(%s, %q) = %v, want %v", tt.language, tt.code, got, tt.want)
		}
	}
}
