package canonical

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
)

func TestJSON(t *testing.T) {
	// Each row is one value, written in several ways, and another than those of all
	// other rows.
	rows := [][]string{
		{`null`, ` null `}, {`true`}, {`false`}, {`"true"`, `"\u0074rue"`}, {`"1"`}, {`""`}, {`{}`, `{ }`}, {`[]`},
		{`0`, `-0`, `0.0`, `0e5`},
		{`1`, `1.0`, `10e-1`, `0.1e1`, `1E+0`},
		{`-1`, `-1.00`}, {`100`, `1e2`, `1.00e2`}, {`10`}, {`1.5`, `15e-1`},
		// One apart, where floating point sees the same.
		{`9007199254740993`}, {`9007199254740992`},
		{`1e999999999999`}, {`1e999999999998`}, {`0.1`}, {`0.10000000000000000001`},
		{`{"a":1,"b":[true,null]}`, `{"b":[true,null],"a":1.0}`, "{\n\"a\" : 1 , \"b\":[ true,null ]}"},
		{`{"a":1,"b":[null,true]}`}, {`{"a":"1","b":[true,null]}`}, {`{"a":{"c":2,"b":1}}`, `{"a":{"b":1,"c":2}}`}, {`{"a":{"b":1}}`},
		{`"` + strings.Repeat("x", 100) + `"`}, {`"` + strings.Repeat("x", 101) + `"`},
	}
	seen := map[string]string{}
	for _, row := range rows {
		first, err := JSON([]byte(row[0]))
		if err != nil {
			t.Fatalf("JSON(%s) = %v", row[0], err)
		}
		if other, ok := seen[first]; ok {
			t.Errorf("%s and %s are the same: %s", row[0], other, first)
		}
		seen[first] = row[0]
		for _, text := range row[1:] {
			if got, err := JSON([]byte(text)); err != nil || got != first {
				t.Errorf("JSON(%s) = %s, %v, want %s", text, got, err, first)
			}
		}
	}
	for _, text := range []string{"", "{", "1 2", "nul", `{"a":1}x`, `'a'`} {
		if got, err := JSON([]byte(text)); !errors.Is(err, errs.Invalid) {
			t.Errorf("JSON(%q) = %s, %v, want invalid", text, got, err)
		}
	}
}

// FuzzJSON: a value has the same canonical text when it is written by another
// encoder.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{`{"b":1.50,"a":[true,null,"x\u0000"]}`, `1e400`, `-0.0`, "\"\x8f\xd8\"", `[[[[1]]]]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		first, err := JSON(text)
		if err != nil {
			return
		}
		raw, err := json.Marshal(json.RawMessage(text))
		if err != nil {
			t.Fatalf("%q has the canonical text %q and cannot be encoded: %v", text, first, err)
		}
		// Bytes that are no UTF-8 are replaced one by one, as the store does it.
		again := string([]rune(string(raw)))
		if second, err := JSON([]byte(again)); err != nil || second != first {
			t.Errorf("%q: %q, and encoded %q, %v", text, first, second, err)
		}
	})
}
