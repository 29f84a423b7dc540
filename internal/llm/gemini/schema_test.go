package gemini

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestParameters(t *testing.T) {
	wrap := func(s string) string { return `{"type":"object","properties":{"a":` + s + `}}` }
	for name, tt := range map[string]struct{ in, want string }{
		"what is not taken": {
			`{"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"x","type":"object","additionalProperties":false,"properties":{"a":{"type":"string","examples":["b"]}},"required":["a","gone"]}`,
			`{"properties":{"a":{"type":"string"}},"required":["a"],"type":"object"}`,
		},
		"references": {
			`{"type":"object","properties":{"a":{"$ref":"#/$defs/A","description":"mine"},"b":{"$ref":"#/$defs/A"}},"$defs":{"A":{"type":"object","description":"theirs","properties":{"c":{"$ref":"#/definitions/C~1x"}}}},"definitions":{"C/x":{"type":"integer","format":"int32"}}}`,
			`{"properties":{"a":{"description":"mine","properties":{"c":{"format":"int32","type":"integer"}},"type":"object"},"b":{"description":"theirs","properties":{"c":{"format":"int32","type":"integer"}},"type":"object"}},"type":"object"}`,
		},
		"null":             {wrap(`{"type":["string","null"]}`), wrap(`{"nullable":true,"type":"string"}`)},
		"null in anyOf":    {wrap(`{"anyOf":[{"type":"integer","minimum":1},{"type":"null"}],"title":"A"}`), wrap(`{"minimum":1,"nullable":true,"title":"A","type":"integer"}`)},
		"many types":       {wrap(`{"type":["string","array"]}`), wrap(`{"anyOf":[{"type":"string"},{"items":{"type":"string"},"type":"array"}]}`)},
		"oneOf":            {wrap(`{"oneOf":[{"type":"string"},{"type":"integer"}]}`), wrap(`{"anyOf":[{"type":"string"},{"type":"integer"}]}`)},
		"allOf":            {wrap(`{"allOf":[{"type":"object","properties":{"x":{"type":"string"}},"required":["x"]},{"properties":{"y":{"type":"number"}},"required":["y"]}]}`), wrap(`{"properties":{"x":{"type":"string"},"y":{"type":"number"}},"required":["x","y"],"type":"object"}`)},
		"formats":          {wrap(`{"type":"string","format":"uri"}`), wrap(`{"type":"string"}`)},
		"a date":           {wrap(`{"type":"string","format":"date-time"}`), wrap(`{"format":"date-time","type":"string"}`)},
		"enum":             {wrap(`{"enum":["x","y",null]}`), wrap(`{"enum":["x","y"],"nullable":true,"type":"string"}`)},
		"enum of numbers":  {wrap(`{"type":"integer","enum":[1,2],"description":"Which."}`), wrap(`{"description":"Which. One of [1,2].","type":"integer"}`)},
		"const":            {wrap(`{"const":"x"}`), wrap(`{"enum":["x"],"type":"string"}`)},
		"an array of any":  {wrap(`{"type":"array"}`), wrap(`{"items":{"type":"string"},"type":"array"}`)},
		"an array":         {wrap(`{"type":"array","items":{"type":"array","items":{"type":"number","exclusiveMinimum":0}},"maxItems":3}`), wrap(`{"items":{"items":{"type":"number"},"type":"array"},"maxItems":3,"type":"array"}`)},
		"anything":         {wrap(`true`), wrap(`{"type":"string"}`)},
		"nothing":          {`{"type":"object","properties":{}}`, `null`},
		"nothing, closed":  {`{"type":"object","additionalProperties":false}`, `null`},
		"types by the way": {`{"properties":{"a":{"type":"string"}}}`, wrap(`{"type":"string"}`)},
	} {
		got, err := parameters(json.RawMessage(tt.in))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var want any
		if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
			t.Fatal(name, err)
		}
		sorted, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != string(sorted) {
			t.Errorf("%s:\n%s, want\n%s", name, text, sorted)
		}
	}
	for name, in := range map[string]string{
		"recursive": `{"type":"object","properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"type":"object","properties":{"again":{"$ref":"#/$defs/A"}}}}}`,
		"itself":    `{"type":"object","properties":{"a":{"$ref":"#/properties/a"}}}`,
	} {
		if _, err := parameters(json.RawMessage(in)); !errors.Is(err, errRecursive) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var many strings.Builder // each twice what the next one is
	for i := range 30 {
		fmt.Fprintf(&many, `"A%d":{"type":"object","properties":{"l":{"$ref":"#/$defs/A%d"},"r":{"$ref":"#/$defs/A%d"}}},`, i, i+1, i+1)
	}
	for name, in := range map[string]string{
		"too much":  `{"type":"object","properties":{"a":{"$ref":"#/$defs/A0"}},"$defs":{` + many.String() + `"A30":{"type":"string"}}}`,
		"elsewhere": wrap(`{"$ref":"https://example.com/schema"}`), "nowhere": wrap(`{"$ref":"#/$defs/None"}`), "through a string": wrap(`{"$ref":"#/type/x"}`),
		"no object": `[]`, "deep": strings.Repeat(`{"type":"object","properties":{"a":`, 40) + "{}" + strings.Repeat("}}", 40),
	} {
		if _, err := parameters(json.RawMessage(in)); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// FuzzParameters proves that what is taken has nothing in it that Gemini refuses.
func FuzzParameters(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"allOf":[{"enum":[1]}],"anyOf":[{"type":["null","array"]}]}}}`))
	f.Add([]byte(`{"allOf":[{"properties":{"x":true}},{"required":["x"]}],"properties":{"y":{"oneOf":[{"const":null},{"items":{}}]}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		out, err := parameters(raw)
		if err != nil || out == nil {
			return
		}
		if _, err := json.Marshal(out); err != nil {
			t.Fatal(err)
		}
		sound(t, out)
	})
}

// sound fails where a schema has what Gemini does not take.
func sound(t *testing.T, s schema) {
	t.Helper()
	for key, value := range s {
		switch key {
		case "type":
			if _, ok := value.(string); !ok {
				t.Fatalf("the type %v", value)
			}
		case "properties":
			for _, property := range value.(schema) {
				sound(t, property.(schema))
			}
		case "items":
			sound(t, value.(schema))
		case "anyOf":
			for _, one := range value.([]schema) {
				sound(t, one)
			}
		case "enum":
			for _, name := range value.([]any) {
				if _, ok := name.(string); !ok {
					t.Fatalf("the value %v", name)
				}
			}
		case "required", "format":
		default:
			if !slices.Contains(taken, key) {
				t.Fatalf("the key %q", key)
			}
		}
	}
}
