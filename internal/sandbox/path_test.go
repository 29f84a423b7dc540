package sandbox_test

import (
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestResolvePath(t *testing.T) {
	tests := map[string]string{
		"": "/workspace", ".": "/workspace", "a": "/workspace/a", "/etc": "/etc", "a/../b": "/workspace/b",
		"../x": "/x", "/../x": "/x", "~": "/workspace/~",
	}
	for name, want := range tests {
		if got, err := sandbox.ResolvePath(name); err != nil || got != want {
			t.Errorf("ResolvePath(%q) = %q, %v, want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"a\x00b", strings.Repeat("x", 5000)} {
		if got, err := sandbox.ResolvePath(name); err == nil {
			t.Errorf("ResolvePath(%.10q) = %.10q, want an error", name, got)
		}
	}
}
