package sandbox

import (
	"strings"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Bounds of the secrets of a tenant.
const (
	MaxSecrets     = 100
	MaxSecretName  = 128
	MaxSecretValue = 32 << 10
)

// ValidateSecretName checks the name of a secret, which becomes that of an
// environment variable: 1 to 128 letters, digits and '_' that do not begin with
// a digit.
func ValidateSecretName(name string) error {
	ok := name != "" && len(name) <= MaxSecretName
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || i > 0 && c >= '0' && c <= '9'
	}
	if !ok {
		return invalid("name: not the name of a secret").
			Hint("a name has 1 to %d characters of A-Z a-z 0-9 _ and does not begin with a digit", MaxSecretName)
	}
	return nil
}

// ValidateSecretValue checks the value of a secret; TooLarge when it is too
// long. Errors do not repeat it.
func ValidateSecretValue(value string) error {
	switch {
	case value == "":
		return invalid("value: empty").Hint("remove a secret that is not needed")
	case len(value) > MaxSecretValue:
		return errs.E(errs.TooLarge, "value: longer than %d bytes", MaxSecretValue)
	case strings.ContainsRune(value, 0) || !utf8.ValidString(value):
		return invalid("value: has a NUL byte or is not UTF-8")
	}
	return nil
}
