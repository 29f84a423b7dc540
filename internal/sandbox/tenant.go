package sandbox

import "strings"

// MaxTenant bounds the name of a tenant.
const MaxTenant = 64

// ValidateTenant checks a name of a tenant: 1 to 64 letters, digits, '.', '_'
// and '-' that begin and end with a letter or digit, without "..".
func ValidateTenant(name string) error {
	alphanumeric := func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
	}
	ok := name != "" && len(name) <= MaxTenant && !strings.Contains(name, "..") &&
		alphanumeric(name[0]) && alphanumeric(name[len(name)-1])
	for i := 0; ok && i < len(name); i++ {
		ok = alphanumeric(name[i]) || strings.IndexByte("._-", name[i]) >= 0
	}
	if !ok {
		return invalid("tenant_id: malformed").
			Hint("a tenant has 1 to %d characters of A-Z a-z 0-9 . _ -, begins and ends with a letter or digit, and has no ..", MaxTenant)
	}
	return nil
}
