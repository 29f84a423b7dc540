package settings

import (
	"strings"

	"github.com/cubbyhq/cubby/internal/config"
)

// View is settings as their owner sees them: without keys.
type View struct {
	Tenant string // "": the operator's
	// Own is what is set; keys are what [Mask] leaves of them.
	Own Document
	// Effective is what holds. A tenant sees of the operator's base URLs and keys
	// that there are some, and not what they are.
	Effective Effective
}

func viewOf(caller string, own Document, e Effective) View {
	shown := own
	shown.Providers = make(map[string]Provider, len(own.Providers))
	for name, p := range own.Providers {
		shown.Providers[name] = Provider{BaseURL: p.BaseURL, Key: Mask(p.Key)}
	}
	for name, p := range e.Providers {
		hint := Mask(string(p.Key))
		if p.Key != "" && !sees(caller, p.KeyFrom) {
			hint = strings.Repeat(dot, shortKey)
		}
		p.Key = config.Secret(hint)
		if !sees(caller, p.BaseURLFrom) {
			p.BaseURL = ""
		}
		e.Providers[name] = p
	}
	return View{Tenant: caller, Own: shown, Effective: e}
}

// sees reports whether a caller may see what a source set.
func sees(caller string, from Source) bool { return caller == "" || from == Tenant }

const (
	dot = "•"
	// Of keys up to shortKey characters nothing is shown.
	shortKey = 8
)

// Mask is what is shown of a key, so that its owner knows it again.
func Mask(key string) string {
	letters := []rune(key)
	n := len(letters)
	if n <= shortKey {
		return strings.Repeat(dot, n)
	}
	return string(letters[:3]) + strings.Repeat(dot, n-7) + string(letters[n-4:])
}
