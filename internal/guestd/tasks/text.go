package tasks

import (
	"strings"
	"unicode/utf8"
)

// head returns at most n bytes of the beginning of s, whole characters.
func head(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// tail returns at most n bytes of the end of s, whole characters.
func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	at := len(s) - n
	for at < len(s) && !utf8.RuneStart(s[at]) {
		at++
	}
	return s[at:]
}

// runes returns at most n characters of the beginning of s.
func runes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// fit returns as much of the beginning of s as takes at most n bytes in JSON.
func fit(s string, n int) string {
	const longest = 6 // \u0000
	if len(s)*longest <= n {
		return s
	}
	size := 0
	for i, c := range s {
		switch {
		case c == '"', c == '\\', c == '\n', c == '\r', c == '\t':
			size += 2
		case c < ' ', c == '\u2028', c == '\u2029', c == utf8.RuneError:
			size += longest
		default:
			size += utf8.RuneLen(c)
		}
		if size > n {
			return s[:i]
		}
	}
	return s
}

// printable is s with bytes that are no UTF-8 written as \xNN.
func printable(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	const hex = "0123456789abcdef"
	var b strings.Builder
	for len(s) > 0 {
		c, size := utf8.DecodeRuneInString(s)
		if c == utf8.RuneError && size == 1 {
			b.WriteString(`\x`)
			b.WriteByte(hex[s[0]>>4])
			b.WriteByte(hex[s[0]&15])
		} else {
			b.WriteString(s[:size])
		}
		s = s[size:]
	}
	return b.String()
}

// tailWriter keeps the end of what is written to it.
type tailWriter struct {
	limit int
	buf   []byte
}

func (t *tailWriter) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*t.limit {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-t.limit:]...)
	}
	return len(p), nil
}

func (t *tailWriter) String() string { return strings.ToValidUTF8(string(t.buf), "\uFFFD") }

// lastRunes returns at most n characters of the end of s.
func lastRunes(s string, n int) string {
	for at := len(s); at > 0; n-- {
		if n == 0 {
			return s[at:]
		}
		_, size := utf8.DecodeLastRuneInString(s[:at])
		at -= size
	}
	return s
}
