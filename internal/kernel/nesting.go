package kernel

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// MaxNesting is how deep the JSON of an [Output] may be for those who read it
// on: deeper than anything that is drawn, and not too deep for readers that go
// down a tree by calling themselves.
const MaxNesting = 128

// Nesting is how deep a JSON text goes; what is no JSON seems to go somewhere. A long
// string costs next to nothing.
func Nesting(text []byte) int {
	depth, deepest := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			n := textLength(text[i+1:])
			if n < 0 {
				return deepest
			}
			i += n
		case '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ']', '}':
			depth--
		}
	}
	return deepest
}

// textLength is how long a JSON string is that has begun, with its last quote; -1: it
// does not end.
func textLength(text []byte) int {
	at, end := 0, -1
	for {
		if end < at { // or it is the quote that was found before: a text can be full of escapes
			n := bytes.IndexByte(text[at:], '"')
			if n < 0 {
				return -1
			}
			end = at + n
		}
		escape := bytes.IndexByte(text[at:end], '\\')
		if escape < 0 {
			return end + 1
		}
		if at += escape + 2; at > len(text) {
			return -1
		}
	}
}

// Valid reports whether a text is JSON, at most so deep. It takes a fraction of what
// encoding/json does, which for a picture of a megabyte is as long as a cell.
func Valid(text []byte, most int) bool { return Nesting(text) <= most && gjson.ValidBytes(text) }

// Members calls each with the members of an object, in their order, until it returns
// false. It reports whether the text, which must be [Valid], is an object and each
// returned true for all of it. Values are parts of the text, and no copies.
func Members(text []byte, each func(name string, value json.RawMessage) bool) bool {
	rest := trimSpace(text)
	if len(rest) == 0 || rest[0] != '{' {
		return false
	}
	for rest = trimSpace(rest[1:]); len(rest) > 0 && rest[0] == '"'; rest = trimSpace(rest) {
		n := valueLength(rest)
		name := rest[:n]
		if rest = trimSpace(rest[n:]); len(rest) == 0 {
			break
		}
		rest = trimSpace(rest[1:]) // the colon
		n = valueLength(rest)
		if !each(textOf(name), json.RawMessage(rest[:n:n])) {
			return false
		}
		if rest = trimSpace(rest[n:]); len(rest) > 0 {
			rest = rest[1:] // a comma, or the end
		}
	}
	return true
}

// valueLength is how long the value is with which a text begins.
func valueLength(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			n := textLength(text[i+1:])
			if n < 0 {
				return len(text)
			}
			if i += n; depth == 0 {
				return i + 1
			}
		case c == '[' || c == '{':
			depth++
		case depth == 0 && (c == ',' || c == ']' || c == '}' || isSpace(c)):
			return i // of a number or a word
		case c == ']' || c == '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(text)
}

// textOf is a JSON string as text.
func textOf(quoted []byte) (text string) {
	if n := len(quoted); n >= 2 && bytes.IndexByte(quoted, '\\') < 0 && utf8.Valid(quoted) {
		return string(quoted[1 : n-1])
	}
	_ = json.Unmarshal(quoted, &text) // "" of what is none
	return text
}

func trimSpace(text []byte) []byte { return bytes.TrimLeft(text, " \t\r\n") }

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
