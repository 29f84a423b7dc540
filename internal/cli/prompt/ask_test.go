package prompt

import (
	"fmt"
	"strings"
	"testing"
)

func TestHelpFor(t *testing.T) {
	for line, want := range map[string]string{
		"python ?len": "len 0", "python len?": "len 0", "python ??a.b": "a.b 1", "python  a.b?? ": "a.b 1", "python ?": " 0", "python *int*?": " 0",
		"python %time?": " 0", "python a b?": " 0", "node ?größe": "größe 0", "node $x?": "$x 0", "r ?mean": " 0", "r mean?": "mean 0",
		"r stats::sd?": "stats::sd 0", "bash ls?": " 0", "python x": " 0",
	} {
		language, line, _ := strings.Cut(line, " ")
		name, detail := helpFor(language, line)
		if got := fmt.Sprintf("%s %d", name, detail); got != want {
			t.Errorf("%s: %s asks for %q, want %q", language, line, got, want)
		}
	}
}

func TestInColumns(t *testing.T) {
	if got, want := inColumns([]string{"ccc", "a", "bb", "a"}, 10, false), "a    ccc\nbb\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := inColumns([]string{"wide name", "a"}, 3, true), "a\nwide name\n… and more\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var many []string
	for i := range maxShown + 7 {
		many = append(many, fmt.Sprint(i))
	}
	if got := inColumns(many, 80, false); !strings.HasSuffix(got, "\n… and 7 more\n") {
		t.Errorf("got %q", got)
	}
}
