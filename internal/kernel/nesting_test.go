package kernel_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/kernel"
)

func TestNesting(t *testing.T) {
	for text, want := range map[string]int{
		``: 0, `1`: 0, `{}`: 1, `[[],[[]]]`: 3, `{"a":{"b":[1]}}`: 3, `{"a":"[[[["}`: 1, `{"a":"\"[["}`: 1, `{"a":"\\"}[`: 1, `]]]]`: 0, `"[`: 0,
		`["\\\"[[", []]`: 2, `"\`: 0, `"a\"`: 0,
	} {
		if got := kernel.Nesting([]byte(text)); got != want {
			t.Errorf("Nesting(%s) = %d, want %d", text, got, want)
		}
	}
}

// A text that is full of escapes was searched to its end after each of them.
func TestNestingOfMegabytesOfEscapes(t *testing.T) {
	text := []byte(`["` + strings.Repeat(`\n`, 8<<20) + `"]`)
	if got := kernel.Nesting(text); got != 1 || !kernel.Valid(text, 1) {
		t.Errorf("Nesting = %d", got)
	}
}

// What is valid and what its members are is what encoding/json says.
func FuzzMembers(f *testing.F) {
	for _, text := range []string{
		``, ` `, `{}`, ` { } `, `{"a":1}`, "{ \"a\" :\t[1, {\"b\": \"}\"}] ,\n\"c\":\"x\\\"y\" }", `{"a":"\\"}`, `{"a":-1.5e3,"b":true,"c":null,"a":2}`,
		`{"\u00e4\n":"\ud83d"}`, "{\"\xff\":1}", `{"a":1}x`, `{"a"}`, `{"a":}`, `{,}`, `[{}]`, `"{`, `{"a":"` + "\n" + `"}`, `{"a":01}`, `{"a":{"b":{}},"c":[[]]}`,
		strings.Repeat("[", 200) + strings.Repeat("]", 200), `{"a`, `{"a":"b`, `{"a":"b\`, `{"a":[`, `{"a":1,`, `{"a" `,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		const most = 100
		valid := json.Valid(text) && kernel.Nesting(text) <= most
		if got := kernel.Valid(text, most); got != valid {
			t.Fatalf("Valid(%q) = %v, want %v", text, got, valid)
		}
		got := make(map[string]json.RawMessage)
		object := kernel.Members(text, func(name string, value json.RawMessage) bool {
			got[name] = value
			return true
		})
		if !valid {
			return // nothing but an end
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(text, &want); (err == nil && want != nil) != object {
			t.Fatalf("Members(%q) = %v, %v", text, object, err)
		}
		if diff := cmp.Diff(want, got); object && diff != "" {
			t.Errorf("Members(%q) (-want +got):\n%s", text, diff)
		}
	})
}

func TestMembersEndsWhenItIsTold(t *testing.T) {
	var names []string
	kernel.Members([]byte(`{"a":1,"b":2,"c":3}`), func(name string, _ json.RawMessage) bool {
		names = append(names, name)
		return name != "b"
	})
	if diff := cmp.Diff([]string{"a", "b"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A line is what encoding/json writes, without line breaks.
func TestLinesOfOutputs(t *testing.T) {
	text := func(s string) json.RawMessage { return json.RawMessage(s) }
	for _, o := range []kernel.Output{
		{Display: &kernel.Display{}},
		{Display: &kernel.Display{Data: kernel.Bundle{}, Metadata: text(`{}`), ID: "<\"é\xff", Update: true}},
		{Display: &kernel.Display{Data: kernel.Bundle{"text/html": text(`"<b>&</b>"`), "a\nb\"": text("{\n \"a\":\r[1,\n2]}"), "image/png": nil}, Metadata: text("{\n}")}},
		{Result: &kernel.Result{Count: 7, Data: kernel.Bundle{"text/plain": text(`"7"`)}, Metadata: text(`{"a":"\u003c"}`)}},
		{Result: &kernel.Result{}},
		{Stream: &kernel.Stream{Name: "stdout", Text: "<a>"}},
		{Done: &kernel.Done{Count: 3}},
	} {
		var b strings.Builder
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(o); err != nil {
			t.Fatal(err)
		}
		got, err := o.AppendLine([]byte("before:"))
		if err != nil || string(got) != "before:"+b.String() {
			t.Errorf("AppendLine = %q, %v, want %q", got, err, b.String())
		}
	}
	if line, err := (kernel.Output{Display: &kernel.Display{Data: kernel.Bundle{"text/plain": text("\nno JSON")}}}).AppendLine(nil); err == nil {
		t.Errorf("what is no JSON is %q", line)
	}
}
