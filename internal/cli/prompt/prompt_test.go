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
		// With arguments.
		{"python", "exit(0)", true}, {"python", "quit(0)", true}, {"python", " exit( -1 ); ", true}, {"python", "exit('bye')", true}, {"python", "exit(code=1)", true},
		{"python", "quit(None)", true}, {"node", "process.exit(0)", true}, {"node", "process.exit(1);", true}, {"node", "process.exit()", true},
		{"r", `q("no")`, true}, {"r", `quit(save="no")`, true}, {"r", `q("no", 1)`, true}, {"r", `quit(save = 'no', status = 2L, runLast = FALSE)`, true},
		{"bash", "exit 3", true}, {"bash", "exit 3 | cat", false}, {"python", "exit 3", false},
		// Of another language, or more than a call of literals.
		{"python", `q("no")`, false}, {"python", "process.exit(0)", false}, {"node", "q()", false},
		{"python", "exit(f())", false}, {"python", "exit(code)", false}, {"python", "exit(0); x = 1", false}, {"python", "exit(0) if x else 1", false},
		{"python", "print(exit(0))", false}, {"python", "exit(0)\nx", false}, {"python", "exit(\n0)", false}, {"python", "exit(0,)", false}, {"python", `exit("a" + "b")`, false},
		{"python", `exit("a\"b")`, false}, {"python", "my.exit(0)", false}, {"r", "q(1 + 1)", false}, {"node", "x = process.exit(0)", false},
	} {
		if got := leaves(tt.language, tt.code); got != tt.want {
			t.Errorf("leaves(%s, %q) = %v, want %v", tt.language, tt.code, got, tt.want)
		}
	}
}
