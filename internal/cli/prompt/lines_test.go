package prompt

import (
	"strings"
	"testing"
)

func TestUnfinished(t *testing.T) {
	tests := []struct {
		language, text string
		want           bool
	}{
		{"python", "1 + 1", false},
		{"python", "f(", true},
		{"python", "f(')')", false},
		{"python", "x = '(", false}, // a mistake that the kernel explains
		{"python", "x = '''", true},
		{"python", "x = '''a\nb'''", false},
		{"python", `"""it's"""`, false},
		{"python", "if x:", true},
		{"python", "if x:\n    y", true},
		{"python", "if x:\n    y\n", false},
		{"python", "if x: y", false},
		{"python", "if x: # why:", true},
		{"python", "d = {1: 2} # :", false},
		{"python", "@cache", true},
		{"python", "@cache\ndef f():\n  pass\n", false},
		{"python", "x = [\n", true},
		{"python", "x = [\n\n", false}, // two empty lines
		{"python", "a = 1 + \\", true},
		{"python", "# (", false},
		{"python", "%%bash\nls", true},
		{"python", "%%bash\nls\n", false},
		{"node", "function f() {", true},
		{"node", "function f() {\n}", false},
		{"node", "`a", true},
		{"node", "`a\nb`", false},
		{"node", "// {", false},
		{"node", "x = 'it`s'", false},
		{"r", "f <- function(x) {", true},
		{"r", "ggplot(d) +", true},
		{"r", "ggplot(d) +\n  geom_point()", false},
		{"r", "x |>", true},
		{"r", "'a", true},
		{"bash", "echo 'a", true},
		{"bash", "case $x in a)", false},
		{"bash", "echo $#", false},
		{"bash", "ls \\", true},
		{"cobol", "f(", false},
	}
	for _, tt := range tests {
		if got := unfinished(tt.language, strings.Split(tt.text, "\n")); got != tt.want {
			t.Errorf("%s: unfinished(%q) = %v", tt.language, tt.text, got)
		}
	}
}
