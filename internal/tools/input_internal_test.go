package tools

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestArguments(t *testing.T) {
	read := func(a *arguments) {
		a.text("session_id")
		a.number("timeout", 30, 1, 300)
		a.oneOf("language", "python", "node", "r")
		a.versions("dependencies")
		a.truth("flag")
		for _, in := range a.list("files") {
			in.textOr("source", "")
			if in.has("content") {
				in.content("content", "encoding")
			}
		}
	}
	const good = `"session_id":"a","files":[{"source":"x"}]`
	for _, tt := range []struct {
		name, raw string
		want      []Detail
	}{
		{"complete", `{` + good + `}`, nil},
		{"optional ones that are null", `{` + good + `,"timeout":null,"language":null,"dependencies":null,"flag":null}`, nil},
		{"fields of others", `{` + good + `,"sessionId":"x","action":"sendMessage"}`, nil},
		{"a number in text", `{` + good + `,"timeout":"30"}`, nil},
		{"a whole fraction", `{` + good + `,"timeout":30.0}`, nil},
		{"nothing", ``, []Detail{{"missing", []Step{"session_id"}, "Field required"}, {"missing", []Step{"files"}, "Field required"}}},
		{"no object", `[]`, []Detail{
			{"dict_type", []Step{}, "Input should be a valid dictionary"},
			{"missing", []Step{"session_id"}, "Field required"}, {"missing", []Step{"files"}, "Field required"},
		}},
		{"too short", `{"session_id":"","files":[]}`, []Detail{
			{"string_too_short", []Step{"session_id"}, "String should have at least 1 character"},
			{"too_short", []Step{"files"}, "List should have at least 1 item after validation, not 0"},
		}},
		{"wrong types", `{"session_id":1,"files":{},"timeout":[],"flag":"maybe","dependencies":[]}`, []Detail{
			{"string_type", []Step{"session_id"}, "Input should be a valid string"},
			{"int_type", []Step{"timeout"}, "Input should be a valid integer"},
			{"dict_type", []Step{"dependencies"}, "Input should be a valid dictionary"},
			{"bool_type", []Step{"flag"}, "Input should be a valid boolean"},
			{"list_type", []Step{"files"}, "Input should be a valid list"},
		}},
		{"out of bounds", `{` + good + `,"timeout":0}`, []Detail{{"greater_than_equal", []Step{"timeout"}, "Input should be greater than or equal to 1"}}},
		{"beyond them", `{` + good + `,"timeout":301}`, []Detail{{"less_than_equal", []Step{"timeout"}, "Input should be less than or equal to 300"}}},
		{"half a second", `{` + good + `,"timeout":1.5}`, []Detail{{"int_type", []Step{"timeout"}, "Input should be a valid integer"}}},
		{"far too much", `{` + good + `,"timeout":1e300}`, []Detail{{"int_type", []Step{"timeout"}, "Input should be a valid integer"}}},
		{"none of the options", `{` + good + `,"language":"julia"}`, []Detail{{"literal_error", []Step{"language"}, "Input should be 'python', 'node' or 'r'"}}},
		{"a version that is none", `{` + good + `,"dependencies":{"a":{}}}`, []Detail{{"string_type", []Step{"dependencies", "a"}, "Input should be a valid string"}}},
		{"in a list", `{"session_id":"a","files":[{},null,{"source":1},{"content":"!","encoding":"base64"},{"content":"a","encoding":"hex"}]}`, []Detail{
			{"dict_type", []Step{"files", 1}, "Input should be a valid dictionary"},
			{"string_type", []Step{"files", 2, "source"}, "Input should be a valid string"},
			{"value_error", []Step{"files", 3, "content"}, "Value error, the content is not base64"},
			{"literal_error", []Step{"files", 4, "encoding"}, "Input should be 'text' or 'base64'"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := parseArguments(json.RawMessage(tt.raw))
			read(a)
			err := a.check()
			var invalid *invalidInput
			var got []Detail
			if errors.As(err, &invalid) {
				got = invalid.details
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.raw, diff)
			}
		})
	}
}

func TestVersions(t *testing.T) {
	a := parseArguments(json.RawMessage(`{"dependencies":{"a":null,"b":2.20,"c":"1.0","d":3,"e":""}}`))
	want := map[string]string{"a": "", "b": "2.20", "c": "1.0", "d": "3", "e": ""}
	if diff := cmp.Diff(want, a.versions("dependencies")); diff != "" || a.check() != nil {
		t.Errorf("versions (-want +got):\n%s%v", diff, a.check())
	}
}

func FuzzArguments(f *testing.F) {
	f.Add([]byte(`{"session_id":"a","timeout":"1e1","files":[{"source":null}],"dependencies":{"a":1e400}}`))
	f.Add([]byte(`{"session_id":"\ud800","files":[[]]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		a := parseArguments(raw)
		if n := a.number("timeout", 30, 1, 300); a.check() == nil && (n < 1 || n > 300) {
			t.Errorf("%q: the number is %d", raw, n)
		}
		if s := a.text("session_id"); a.check() == nil && s == "" {
			t.Errorf("%q: the text is empty", raw)
		}
		a.versions("dependencies")
		if l := a.list("files"); a.check() == nil && len(l) == 0 {
			t.Errorf("%q: the list is empty", raw)
		}
		if err := a.check(); err != nil {
			if _, err := json.Marshal(Failure{Error: "INVALID_INPUT", Details: *a.wrong}); err != nil {
				t.Error(err)
			}
		}
	})
}
