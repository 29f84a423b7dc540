// Package column has the forms in which a store's columns keep times and JSON, for
// every database the same.
package column

import (
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Micros is how times are stored: microseconds since 1970 UTC, 0 for the zero
// time.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// FromMicros is the time of a column that [Micros] made.
func FromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// JSON is the column of a value. Invalid when it has no JSON.
func JSON(v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", errs.E(errs.Invalid, "it cannot be stored").Because(err)
	}
	return string(text), nil
}

// Read reads a column of JSON into v. Internal when it is damaged.
func Read(text []byte, v any) error {
	if err := json.Unmarshal(text, v); err != nil {
		return errs.E(errs.Internal, "the store is damaged").Because(err)
	}
	return nil
}

// Text is [JSON] of what clients sent: bytes that are no UTF-8, which not
// every database takes, are replaced.
func Text(v any) (string, error) {
	text, err := JSON(v)
	if !utf8.ValidString(text) {
		text = string([]rune(text)) // each byte by itself, as encoding/json reads it
	}
	return text, err
}

// List is [Text] of a list; nil is an empty one.
func List[T any](list []T) (string, error) {
	if list == nil {
		list = []T{}
	}
	return Text(list)
}

// Null is for JSON columns that may be NULL.
func Null(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return string(b)
}

// Raw is the column of a JSON value that may be missing: "" is none, and so is
// null.
func Raw(value json.RawMessage) (string, error) {
	if len(value) == 0 {
		return "", nil
	}
	text, err := Text(value)
	if text == "null" {
		text = ""
	}
	return text, err
}

// ReadRaw is the value of a column that [Raw] made.
func ReadRaw(column string) json.RawMessage {
	if column == "" {
		return nil
	}
	return json.RawMessage(column)
}

// Metadata is the column of metadata; '{}' is none.
func Metadata(metadata map[string]json.RawMessage) (string, error) {
	if len(metadata) == 0 {
		return "{}", nil
	}
	return Text(metadata)
}
