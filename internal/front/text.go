package front

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
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

// PlainJSON is json.Marshal that leaves <, > and & as they are: what an encoder
// gets from a MarshalJSON it does not unescape. A line break ends it.
func PlainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}

// RawJSON is nil where there is none: null says something else.
func RawJSON(text json.RawMessage) any {
	if len(text) == 0 {
		return nil
	}
	return text
}
