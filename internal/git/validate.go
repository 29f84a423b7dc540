package git

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/errs"
)

const (
	maxPath       = 4096
	maxURL        = 4096
	maxRef        = 250
	maxFiles      = 1000
	maxCredential = 8192
	maxMessage    = 64 << 10
)

func notInURL(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) || r == utf8.RuneError }

// validateRef takes the name of a branch, a tag or a commit.
func validateRef(field, name string) error {
	if len(name) > maxRef || strings.HasPrefix(name, "-") || strings.ContainsFunc(name, notInURL) || name == "" {
		return invalid("%s: not the name of a branch or commit", field)
	}
	return nil
}

// validateBranch takes what git check-ref-format --branch takes, but for names
// that git would resolve to others.
func validateBranch(field, name string) error {
	if err := validateRef(field, name); err != nil {
		return err
	}
	bad := strings.ContainsAny(name, `~^:?*[\`) || strings.Contains(name, "..") || strings.Contains(name, "@{") ||
		strings.HasSuffix(name, ".") || name == "@" || name == "HEAD"
	for part := range strings.SplitSeq(name, "/") {
		bad = bad || part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock")
	}
	if bad {
		return invalid("%s: no branch can have this name", field).Hint("see git help check-ref-format")
	}
	return nil
}

// validateRemote takes the name of a configured remote: a URL is none.
func validateRemote(name string) error {
	ok := name != "" && len(name) <= maxRef
	for i, c := range []byte(name) {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		ok = ok && (alnum || i > 0 && strings.IndexByte("._-", c) >= 0)
	}
	if !ok {
		return invalid("remote: not the name of a remote").Hint("give its name, as origin; git remote in the sandbox lists them")
	}
	return nil
}

func validateFiles(files []string) error {
	if len(files) > maxFiles {
		return errs.E(errs.TooLarge, "files: more than %d", maxFiles).Hint("name directories, or set all")
	}
	for _, f := range files {
		if f == "" || len(f) > maxPath || strings.ContainsRune(f, 0) {
			return invalid("files: an entry is not a path")
		}
	}
	return nil
}
