package sandbox

import (
	"errors"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
)

func TestValidateTenant(t *testing.T) {
	for _, name := range []string{"a", "7", "acme", "Acme-1_x.y", strings.Repeat("a", 64)} {
		if err := ValidateTenant(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{
		"", ".", "..", "../x", "a/../b", "a/b", "/etc", "a..b", "-a", "a-", ".a", "a.", "_a", `a\b`, "a b", "a\x00", "a\n", "a%2fb",
		"ä", "a\u2024b", strings.Repeat("a", 65),
	} {
		if err := ValidateTenant(name); !errors.Is(err, errs.Invalid) {
			t.Errorf("%q: %v, want Invalid", name, err)
		}
	}
}

func FuzzValidateTenant(f *testing.F) {
	for _, name := range []string{"acme", "../..", "a..b", "a/b", ""} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if ValidateTenant(name) == nil && (strings.ContainsAny(name, "/\\\x00%") || strings.Contains(name, "..") || len(name) > MaxTenant || name == "") {
			t.Errorf("%q is a tenant", name)
		}
	})
}
