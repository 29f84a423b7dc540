package store

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store/canonical"
)

// Metadata is compared by the canonical text of its values.

const (
	// maxMetadata bounds the names of one thing's metadata, and maxMatch those that a
	// query asks for.
	maxMetadata = 256
	maxMatch    = 32
	// maxCanonical is how long a text is kept as it is; of longer ones the digest is.
	maxCanonical = 64
)

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
		value, err := canonical.JSON(orNull(metadata[name]))
		if err != nil {
			return nil, err
		}
		list = append(list, entry{matchText(canonical.String(name)), matchText(value)})
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
