package canonical

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Metadata is compared by the canonical text of its values.

const (
	// MaxMetadata bounds the names of one thing's metadata, and MaxMatch those that a
	// query asks for.
	MaxMetadata = 256
	MaxMatch    = 32
	// maxText is how long a text is kept as it is; of longer ones the digest is.
	maxText = 64
)

// matchText is what is kept and compared of a canonical text. A digest is none: it
// begins as no JSON does.
func matchText(text string) string {
	if len(text) <= maxText {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return "sha256 " + hex.EncodeToString(sum[:])
}

// Entry is one name of metadata and its value, as they are kept and compared.
type Entry struct{ Name, Value string }

// Entries are those of metadata, by name. Invalid when there are more than most.
func Entries(metadata map[string]json.RawMessage, most int) ([]Entry, error) {
	if len(metadata) > most {
		return nil, errs.E(errs.Invalid, "metadata has %d names, at most %d are possible", len(metadata), most)
	}
	list := make([]Entry, 0, len(metadata))
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		value, err := JSON(orNull(metadata[name]))
		if err != nil {
			return nil, err
		}
		list = append(list, Entry{matchText(String(name)), matchText(value)})
	}
	return list, nil
}

// Has reports whether metadata has all entries that are wanted.
func Has(metadata map[string]json.RawMessage, want []Entry) (bool, error) {
	if len(want) == 0 {
		return true, nil
	}
	list, err := Entries(metadata, MaxMetadata)
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
