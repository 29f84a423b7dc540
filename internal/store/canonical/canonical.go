// Package canonical writes JSON in one way: the same value has the same text, whatever
// the order of its keys, its spaces, and how its numbers and its strings are written.
// Metadata is compared by it.
package canonical

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
)

// JSON returns the text of a JSON value by which it is compared. Invalid when it is
// not JSON.
func JSON(value []byte) (string, error) {
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
	write(&b, v)
	return b.String(), nil
}

func write(b *strings.Builder, v any) {
	switch v := v.(type) {
	case map[string]any:
		b.WriteByte('{')
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b.WriteByte(',')
			}
			write(b, name)
			b.WriteByte(':')
			write(b, v[name])
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, element := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			write(b, element)
		}
		b.WriteByte(']')
	case json.Number:
		b.WriteString(number(string(v)))
	default: // a string, a boolean or null
		text, _ := json.Marshal(v) // these never fail
		b.Write(text)
	}
}

// number writes a number as its digits, without zeros at either end, and a
// power of ten: 1, 1.0 and 10e-1 are "1e0". It is exact, however long the number.
func number(text string) string {
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

// String returns the canonical text of a string.
func String(s string) string {
	var b strings.Builder
	write(&b, s)
	return b.String()
}
