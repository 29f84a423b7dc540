package kernel_test

import (
	"testing"

	"github.com/cubbyhq/cubby/internal/kernel"
)

func TestNesting(t *testing.T) {
	for text, want := range map[string]int{
		``: 0, `1`: 0, `{}`: 1, `[[],[[]]]`: 3, `{"a":{"b":[1]}}`: 3, `{"a":"[[[["}`: 1, `{"a":"\"[["}`: 1, `{"a":"\\"}[`: 1, `]]]]`: 0, `"[`: 0,
	} {
		if got := kernel.Nesting([]byte(text)); got != want {
			t.Errorf("Nesting(%s) = %d, want %d", text, got, want)
		}
	}
}
