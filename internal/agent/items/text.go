package items

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
)

// The bounds of what is searched, and for what.
const (
	maxFields = 32
	maxQuery  = 4 << 10
	maxWords  = 64
)

// fieldsOf reads which fields of a value are searched; nil is all.
func fieldsOf(index json.RawMessage) (json.RawMessage, error) {
	if !conversation.Given(index) {
		return nil, nil
	}
	var all bool
	if json.Unmarshal(index, &all) == nil {
		if all {
			return nil, nil
		}
		return json.RawMessage("false"), nil
	}
	var paths []string
	if json.Unmarshal(index, &paths) != nil || len(paths) > maxFields {
		return nil, errs.E(errs.Invalid, "index: neither false nor a list of at most %d paths", maxFields)
	}
	for _, p := range paths {
		if p == "" || len(p) > maxName {
			return nil, errs.E(errs.Invalid, "index: %.60q is no path", p).Hint("as title, or chapters[*].text")
		}
	}
	return json.Marshal(paths)
}

// query is the words that a search is for.
type query []string

// parseQuery takes a text apart; what has no word searches for nothing.
func parseQuery(text string) (query, error) {
	if len(text) > maxQuery {
		return nil, errs.E(errs.Invalid, "query: over %d bytes", maxQuery)
	}
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) })
	slices.Sort(words)
	words = slices.Compact(words)
	return words[:min(len(words), maxWords)], nil
}

// score is the share of the words that an item has, from 0 to 1.
func (q query) score(i conversation.Item, value any) float64 {
	var text strings.Builder
	if i.Fields == nil {
		write(&text, value)
	} else {
		var paths []string
		_ = json.Unmarshal(i.Fields, &paths) // false is none
		for _, p := range paths {
			at(value, p, func(v any) { write(&text, v) })
		}
	}
	all := strings.ToLower(text.String())
	n := 0
	for _, word := range q {
		if strings.Contains(all, word) {
			n++
		}
	}
	return float64(n) / float64(max(len(q), 1))
}

// write adds the texts and numbers of a value, and the names in it.
func write(b *strings.Builder, v any) {
	switch v := v.(type) {
	case string:
		b.WriteString(v)
		b.WriteByte('\n')
	case json.Number:
		b.WriteString(string(v))
		b.WriteByte('\n')
	case []any:
		for _, one := range v {
			write(b, one)
		}
	case map[string]any:
		for name, one := range v {
			b.WriteString(name)
			b.WriteByte('\n')
			write(b, one)
		}
	}
}

// at finds what a path leads to in a value: names with periods between them, each with
// [n], [-1] or [*] for elements of lists, and * for all there are. $ is the whole.
func at(v any, path string, found func(any)) {
	if path == "" || path == "$" {
		found(v)
		return
	}
	if rest, ok := strings.CutPrefix(path, "["); ok {
		index, rest, _ := strings.Cut(rest, "]")
		list, _ := v.([]any)
		rest = strings.TrimPrefix(rest, ".")
		if index == "*" {
			for _, one := range list {
				at(one, rest, found)
			}
			return
		}
		n, err := strconv.Atoi(index)
		if n < 0 {
			n += len(list)
		}
		if err == nil && n >= 0 && n < len(list) {
			at(list[n], rest, found)
		}
		return
	}
	end := strings.IndexAny(path, ".[")
	name, rest := path, ""
	if end >= 0 {
		name, rest = path[:end], strings.TrimPrefix(path[end:], ".")
	}
	switch v := v.(type) {
	case map[string]any:
		if one, ok := v[name]; ok {
			at(one, rest, found)
		} else if name == "*" {
			for _, one := range v {
				at(one, rest, found)
			}
		}
	case []any:
		if name == "*" {
			for _, one := range v {
				at(one, rest, found)
			}
		}
	}
}
