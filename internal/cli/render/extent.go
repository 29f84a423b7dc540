package render

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// extent is how far a terminal's cursor has come since something began at the
// left edge.
type extent struct{ rows, col int }

// add follows what is written to a terminal of so many columns.
func (e *extent) add(text string, cols int) {
	for text != "" {
		if sequence := leading.FindString(text); sequence != "" {
			e.move(sequence)
			text = text[len(sequence):]
			continue
		}
		r, size := utf8.DecodeRuneInString(text)
		text = text[size:]
		switch r {
		case '\n':
			e.rows, e.col = e.rows+1, 0
		case '\r':
			e.col = 0
		case '\b':
			e.col = max(e.col-1, 0)
		case '\t':
			e.col = min(e.col/8*8+8, cols-1)
		default:
			n := Width(r)
			if e.col+n > cols {
				e.rows, e.col = e.rows+1, 0
			}
			e.col += n
		}
	}
}

// leading is an escape sequence that a text begins with.
var leading = regexp.MustCompile("^(?:" + escapes.String() + ")")

// move follows the escape sequences that progress bars use.
func (e *extent) move(sequence string) {
	n, err := strconv.Atoi(strings.Trim(sequence, "\x1b[ABCDEFG"))
	if err != nil {
		n = 1
	}
	switch sequence[len(sequence)-1] {
	case 'A':
		e.rows -= n
	case 'B':
		e.rows += n
	case 'E':
		e.rows, e.col = e.rows+n, 0
	case 'F':
		e.rows, e.col = e.rows-n, 0
	case 'G':
		e.col = n - 1
	}
}

// Width is how many columns a character takes on a terminal.
func Width(r rune) int {
	switch {
	case r < ' ', unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana),
		r >= 0x3000 && r <= 0x303f, r >= 0xff01 && r <= 0xff60, r >= 0x1f300 && r <= 0x1faff:
		return 2
	}
	return 1
}

// erase returns what removes all of it from a screen of so many rows: what has
// left that at the top stays.
func (e *extent) erase(rows int) string {
	var up string
	if n := min(e.rows, rows-1); n > 0 {
		up = fmt.Sprintf("\x1b[%dA", n)
	}
	return up + "\r\x1b[J"
}
