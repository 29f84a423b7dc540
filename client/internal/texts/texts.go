// Package texts is what commands say and are, as JSON carries it and as people are shown
// it.
package texts

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

const (
	maxLineShown = 100
	maxTail      = 2000
	maxTailLines = 20
)

// Tail is the last lines of an output; "…" stands for those before.
func Tail(text string) string {
	text = strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD"))
	lines := strings.Split(text, "\n")
	end := strings.Join(lines[max(0, len(lines)-maxTailLines):], "\n")
	if len(end) > maxTail {
		end = strings.ToValidUTF8(end[len(end)-maxTail:], "")
	}
	if len(end) < len(text) {
		end = "…" + end
	}
	return end
}

// Line is text on one line, cut where it is long.
func Line(text string) string {
	line := strings.Join(strings.Fields(text), " ")
	if runes := []rune(line); len(runes) > maxLineShown {
		line = string(runes[:maxLineShown-1]) + "…"
	}
	return line
}

// Quote writes an argument as a shell would read it.
func Quote(arg string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@%+=:,./-_", r)
	}
	if arg != "" && strings.TrimLeftFunc(arg, plain) == "" {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'"'"'`) + "'"
}

// Encode is output as JSON carries it: as base64 when it is not UTF-8.
func Encode(s string) (text, encoding string) {
	if utf8.ValidString(s) {
		return s, ""
	}
	return base64.StdEncoding.EncodeToString([]byte(s)), "base64"
}

// Decode is the output that JSON carried.
func Decode(s, encoding string) (string, error) {
	if encoding != "base64" {
		return s, nil
	}
	b, err := base64.StdEncoding.DecodeString(s)
	return string(b), err
}
