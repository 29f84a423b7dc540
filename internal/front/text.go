package front

import (
	"encoding/base64"
	"unicode/utf8"
)

// EncodeText returns bytes as text where they are UTF-8, with the encoding "",
// and otherwise as base64.
func EncodeText(b []byte) (text, encoding string) {
	if utf8.Valid(b) {
		return string(b), ""
	}
	return base64.StdEncoding.EncodeToString(b), "base64"
}

// PartialRune counts the bytes at the end of b that begin a character and do
// not finish it.
func PartialRune(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return n
			}
			return 0
		}
	}
	return 0
}
