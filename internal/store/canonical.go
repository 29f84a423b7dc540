package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Metadata is compared by the canonical text of its values: the same JSON value has
// one, whatever the order of its keys, its spaces, and how its numbers and its
// strings are written.

const (
	// maxMetadata bounds the names of one thing's metadata, and maxMatch those that a
	// query asks for.
	maxMetadata = 256
	maxMatch    = 32
	// maxCanonical is how long a text is kept as it is; of longer ones the digest is.
	maxCanonical = 64
)

// canonical returns the text of a JSON value by which it is compared. Invalid when
// it is not JSON.
func canonical(value []byte) (string, error) {
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "", errs.E(errs.Invalid, "metadata is not JSON").Because(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return "", errs.E(errs.Invalid, "metadata is not JSON")
	}
	var b strings.Builder
	writeCanonical(&b, v)
	return b.String(), nil
}

func writeCanonical(b *strings.Builder, v any) {
	switch v := v.(type) {
	case map[string]any:
		b.WriteByte('{')
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b.WriteByte(',')
			}
			writeCanonical(b, name)
			b.WriteByte(':')
			writeCanonical(b, v[name])
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, element := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			writeCanonical(b, element)
		}
		b.WriteByte(']')
	case json.Number:
		b.WriteString(canonicalNumber(string(v)))
	default: // a string, a boolean or null
		text, _ := json.Marshal(v) // these never fail
		b.Write(text)
	}
}

// canonicalNumber writes a number as its digits, without zeros at either end, and a
// power of ten: 1, 1.0 and 10e-1 are "1e0". It is exact, however long the number.
func canonicalNumber(text string) string {
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	}
	mantissa, power := text, int64(0)
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		n, err := strconv.ParseInt(strings.TrimPrefix(text[i+1:], "+"), 10, 32)
		if err != nil {
			return sign + text // too great a power for anybody to write in two ways
		}
		mantissa, power = text[:i], n
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	power -= int64(len(fraction))
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0e0"
	}
	short := strings.TrimRight(digits, "0")
	power += int64(len(digits) - len(short))
	return sign + short + "e" + strconv.FormatInt(power, 10)
}

// matchText is what is kept and compared of a canonical text. A digest is none: it
// begins as no JSON does.
func matchText(text string) string {
	if len(text) <= maxCanonical {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return "sha256 " + hex.EncodeToString(sum[:])
}

// entry is one name of metadata and its value, as they are kept and compared.
type entry struct{ name, value string }

// entries are those of metadata, by name. Invalid when there are more than most.
func entries(metadata map[string]json.RawMessage, most int) ([]entry, error) {
	if len(metadata) > most {
		return nil, errs.E(errs.Invalid, "metadata has %d names, at most %d are possible", len(metadata), most)
	}
	list := make([]entry, 0, len(metadata))
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		value, err := canonical(orNull(metadata[name]))
		if err != nil {
			return nil, err
		}
		var quoted strings.Builder
		writeCanonical(&quoted, name)
		list = append(list, entry{matchText(quoted.String()), matchText(value)})
	}
	return list, nil
}

// has reports whether metadata has all entries that are wanted.
func has(metadata map[string]json.RawMessage, want []entry) (bool, error) {
	if len(want) == 0 {
		return true, nil
	}
	list, err := entries(metadata, maxMetadata)
	if err != nil {
		return false, err
	}
	for _, w := range want {
		if !slices.Contains(list, w) {
			return false, nil
		}
	}
	return true, nil
}

// orNull is a value of which nothing is said.
func orNull(value json.RawMessage) json.RawMessage {
	if len(value) == 0 {
		return json.RawMessage("null")
	}
	return value
}

// encodeText is [encode] of what clients sent: bytes that are no UTF-8, which not
// every database takes, are replaced.
func encodeText(v any) (string, error) {
	text, err := encode(v)
	if !utf8.ValidString(text) {
		text = string([]rune(text)) // each byte by itself, as encoding/json reads it
	}
	return text, err
}

// encodeRaw is the column of a JSON value that may be missing: ” is none, and so is
// null.
func encodeRaw(value json.RawMessage) (string, error) {
	if len(value) == 0 {
		return "", nil
	}
	text, err := encodeText(value)
	if text == "null" {
		text = ""
	}
	return text, err
}

func decodeRaw(column string) json.RawMessage {
	if column == "" {
		return nil
	}
	return json.RawMessage(column)
}

// encodeMetadata is the column of metadata; '{}' is none.
func encodeMetadata(metadata map[string]json.RawMessage) (string, error) {
	if len(metadata) == 0 {
		return "{}", nil
	}
	return encodeText(metadata)
}
