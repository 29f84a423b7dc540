package tasks

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

const (
	// minSecret is the length from which a value is kept out of the output: a
	// shorter one is part of too many words.
	minSecret = 6
	// minSecretLine is that of the lines of a secret of several lines, as of a key
	// in a file: a diff shows them one by one.
	minSecretLine = 16
)

// redactor replaces the values of secret variables by their names.
type redactor struct {
	patterns []pattern      // the longest first
	first    [256][]pattern // by their first byte
	longest  int
}

type pattern struct{ text, name string }

// newRedactor knows the variables of env that are named or whose names say that
// they are secret.
func newRedactor(env, named []string) *redactor {
	r := &redactor{}
	seen := make(map[string]bool)
	add := func(text, name string) {
		if len(text) >= minSecret && !seen[text] {
			seen[text] = true
			r.patterns = append(r.patterns, pattern{text, "[" + name + "]"})
		}
	}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		if !slices.Contains(named, name) && !secretName(name) {
			continue
		}
		add(value, name)
		add(strings.TrimSpace(value), name)
		add(escaped(value), name)
		add(escaped(escaped(value)), name)
		if lines := strings.Split(value, "\n"); len(lines) > 1 {
			for _, line := range lines {
				if line = strings.TrimSpace(line); len(line) >= minSecretLine {
					add(line, name)
				}
			}
		}
	}
	slices.SortStableFunc(r.patterns, func(a, b pattern) int { return len(b.text) - len(a.text) })
	for _, p := range r.patterns {
		r.longest = max(r.longest, len(p.text))
		r.first[p.text[0]] = append(r.first[p.text[0]], p)
	}
	return r
}

func secretName(name string) bool {
	name = strings.ToUpper(name)
	for _, word := range []string{"KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// escaped is text as it stands in a string of JSON.
func escaped(text string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(text) != nil {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(b.String(), "\n"), `"`), `"`)
}

// text returns s without secrets.
func (r *redactor) text(s string) string {
	clean, _ := r.split(s, true)
	return clean
}

// split returns the text of a stream that can be shown, without secrets, and the
// end of it that may be the beginning of one: it belongs before what comes next.
// Of the last piece nothing is held.
func (r *redactor) split(s string, last bool) (clean, held string) {
	if len(r.patterns) == 0 {
		return s, ""
	}
	var out strings.Builder
	shown := 0 // s is in out, or replaced, up to here
next:
	for i := 0; i < len(s); {
		for _, p := range r.first[s[i]] {
			switch {
			case strings.HasPrefix(s[i:], p.text):
				out.WriteString(s[shown:i])
				out.WriteString(p.name)
				i += len(p.text)
				shown = i
				continue next
			case !last && len(s)-i < len(p.text) && strings.HasPrefix(p.text, s[i:]):
				out.WriteString(s[shown:i])
				return out.String(), s[i:]
			}
		}
		i++
	}
	if shown == 0 {
		return s, ""
	}
	out.WriteString(s[shown:])
	return out.String(), ""
}
