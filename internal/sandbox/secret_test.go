package sandbox

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
)

func TestValidateSecretName(t *testing.T) {
	for _, name := range []string{"a", "_", "Z", "API_KEY", "_x9", "k2", strings.Repeat("A", 128)} {
		if err := ValidateSecretName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{
		"", "1", "9A", "A-B", "A.B", "A B", " A", "A=", "A\n", "A\x00", "a/b", "..", "Ä", "K\u0130", strings.Repeat("A", 129),
	} {
		if err := ValidateSecretName(name); !errors.Is(err, errs.Invalid) {
			t.Errorf("%q: %v, want Invalid", name, err)
		}
	}
}

func FuzzValidateSecretName(f *testing.F) {
	for _, name := range []string{"API_KEY", "1A", "", "A=B", "A\n"} {
		f.Add(name)
	}
	want := regexp.MustCompile(`\A[A-Za-z_][A-Za-z0-9_]{0,127}\z`)
	f.Fuzz(func(t *testing.T, name string) {
		if got := ValidateSecretName(name) == nil; got != want.MatchString(name) {
			t.Errorf("%q is a name: %t", name, got)
		}
	})
}

func TestValidateSecretValue(t *testing.T) {
	for _, value := range []string{"x", " ", "line\nline\n", "ä", strings.Repeat("x", 32<<10)} {
		if err := ValidateSecretValue(value); err != nil {
			t.Errorf("%.20q: %v", value, err)
		}
	}
	for value, want := range map[string]errs.Kind{
		"": errs.Invalid, "hush\x00": errs.Invalid, "hush\xff": errs.Invalid, strings.Repeat("hush", 8<<10) + "!": errs.TooLarge,
	} {
		err := ValidateSecretValue(value)
		if !errors.Is(err, want) {
			t.Errorf("%.20q: %v, want %v", value, err, want)
			continue
		}
		if info := errs.Public(err); strings.Contains(info.Message+info.Hint, "hush") {
			t.Errorf("the error repeats the value: %+v", info)
		}
	}
}
