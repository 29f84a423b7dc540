package sandbox

import (
	"crypto/rand"
	"crypto/sha256"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/cubbyhq/cubby/internal/errs"
)

// ID names a sandbox to its users. It is given by the caller or generated, is
// unique among live sandboxes without regard to case, and can be used again
// after a destroy. Nothing on disk is keyed by it: see [UID].
type ID string

// MaxIDLength keeps "s-<id>-<port>" within the 63 bytes of a DNS label.
const MaxIDLength = 55

// ParseID is the only way from outside text to an ID. It accepts 1 to 55
// letters, digits, '-' and '_' that begin and end with a letter or digit, and
// returns errs.Invalid for anything else.
func ParseID(s string) (ID, error) {
	if !validName(s, MaxIDLength) {
		return "", errs.E(errs.Invalid, "malformed sandbox id").
			Hint("an id has 1 to %d characters of A-Z a-z 0-9 - _ and begins and ends with a letter or digit", MaxIDLength)
	}
	return ID(s), nil
}

// Key is the form in which ids are compared: host names are lower-cased on the
// wire, so ids that differ only in case would collide there.
func (id ID) Key() string { return strings.ToLower(string(id)) }

// UID is the internal key of one incarnation of a sandbox: 26 lower-case
// characters, never used twice. Files, rows, mounts, cgroups and runtime ids
// are keyed by it, so a reused ID starts empty. The fixed length matters:
// runsc resolves runtime ids by prefix.
type UID string

// NewUID returns a fresh UID. UIDs sort by the time of their making.
func NewUID() UID { return UID(newULID()) }

// DerivedUID is the UID that a secret makes of another: always the same, and to be
// foreseen by nobody without the secret. It has no time.
func DerivedUID(secret string, from UID) UID {
	sum := sha256.Sum256([]byte("cubby derived uid\n" + secret + "\n" + string(from)))
	return UID(strings.ToLower(ulid.ULID(sum[:16]).String()))
}

// NewID returns a fresh ID for a caller who gave none: a lower-case ULID.
func NewID() ID { return ID(newULID()) }

// ParseUID checks text that claims to be a UID, such as a directory name.
func ParseUID(s string) (UID, error) {
	if len(s) != ulid.EncodedSize || s != strings.ToLower(s) {
		return "", errs.E(errs.Invalid, "malformed uid")
	}
	if _, err := ulid.ParseStrict(strings.ToUpper(s)); err != nil {
		return "", errs.E(errs.Invalid, "malformed uid").Because(err)
	}
	return UID(s), nil
}

func newULID() string {
	return strings.ToLower(ulid.MustNew(ulid.Now(), rand.Reader).String())
}

func validName(s string, limit int) bool {
	if s == "" || len(s) > limit {
		return false
	}
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (c != '-' && c != '_' || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return true
}
