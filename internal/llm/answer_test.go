package llm

import (
	"reflect"
	"testing"
)

func TestAnswer(t *testing.T) {
	cost := 0.5
	for name, tt := range map[string]struct {
		events []Event
		want   []Part
	}{
		"nothing": {[]Event{Retrying{}, Usage{Input: 1, Cost: &cost}, Done{Stop: StopEnd}}, nil},
		"text":    {[]Event{TextDelta{"a"}, TextDelta{"b"}}, []Part{Text{"ab"}}},
		"text around a call": {
			[]Event{TextDelta{"a"}, ToolCallDelta{Index: 0, ID: "1", Name: "f"}, ToolCallDelta{Index: 0, Arguments: "{}"}, TextDelta{"b"}},
			[]Part{Text{"a"}, ToolCall{ID: "1", Name: "f", Arguments: "{}"}, Text{"b"}},
		},
		"thoughts": {
			[]Event{ReasoningDelta{Index: 0, Text: "a"}, ReasoningDelta{Index: 0, Text: "b"}, ReasoningDelta{Index: 0, Opaque: []byte("1")}, ReasoningDelta{Index: 1, Text: "c"}},
			[]Part{Reasoning{"ab", []byte("1")}, Reasoning{Text: "c"}},
		},
		"thoughts around text": {
			[]Event{ReasoningDelta{Index: 0, Text: "a"}, TextDelta{"b"}, ReasoningDelta{Index: 1, Text: "c"}, TextDelta{"d"}},
			[]Part{Reasoning{Text: "a"}, Text{"b"}, Reasoning{Text: "c"}, Text{"d"}},
		},
		"a signature alone": {[]Event{TextDelta{"a"}, ReasoningDelta{Index: 0, Opaque: []byte("1")}}, []Part{Text{"a"}, Reasoning{Opaque: []byte("1")}}},
		"calls between each other": {
			[]Event{
				ToolCallDelta{Index: 0, ID: "1", Name: "f", Opaque: []byte("1")}, ToolCallDelta{Index: 1, ID: "2", Name: "g", Arguments: "["},
				ToolCallDelta{Index: 0, Arguments: "{"}, ToolCallDelta{Index: 1, Arguments: "]"}, ToolCallDelta{Index: 0, Arguments: "}"},
			},
			[]Part{ToolCall{"1", "f", "{}", []byte("1")}, ToolCall{ID: "2", Name: "g", Arguments: "[]"}},
		},
		"a picture": {[]Event{TextDelta{"a"}, ImageOut{Image{URL: "u"}}, TextDelta{"b"}}, []Part{Text{"a"}, Image{URL: "u"}, Text{"b"}}},
	} {
		var a Answer
		for _, e := range tt.events {
			a.Add(e)
		}
		if !reflect.DeepEqual(a.Parts, tt.want) {
			t.Errorf("%s: %#v, want %#v", name, a.Parts, tt.want)
		}
	}
}
