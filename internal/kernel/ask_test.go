package kernel

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestAnswersAreBounded(t *testing.T) {
	many, _ := json.Marshal(slices.Repeat([]string{"x"}, MaxMatches+5))
	tests := []struct {
		text  string
		texts int
		more  bool
		bad   bool
	}{
		{`[]`, 0, false, false},
		{`null`, 0, false, false},
		{`["a","b"]`, 2, false, false},
		{string(many), MaxMatches, true, false},
		{`["` + strings.Repeat("x", MaxMatch+1) + `","b"]`, 1, true, false},
		{`["a",7]`, 0, false, true},
		{`{"a":1}`, 0, false, true},
	}
	for _, tt := range tests {
		var m Matches
		err := json.Unmarshal([]byte(tt.text), &m)
		if (err != nil) != tt.bad || !tt.bad && (len(m.Texts) != tt.texts || m.More != tt.more) {
			t.Errorf("%.40s: %d matches, more %v, %v", tt.text, len(m.Texts), m.More, err)
		}
	}
	long := strings.Repeat("é", MaxInspection)
	var texts Texts
	text, _ := json.Marshal(map[string]any{"text/plain": long, "text/html": "<b>", "image/png": "x", "application/json": map[string]int{}})
	if err := json.Unmarshal(text, &texts); err != nil || len(texts) != 1 || len(texts["text/plain"]) > MaxInspection ||
		!strings.HasPrefix(long, texts["text/plain"]) || len(texts["text/plain"]) < MaxInspection/2 {
		t.Errorf("long texts: %d of them, %v", len(texts), err)
	}
	if err := json.Unmarshal([]byte(`{"text/plain":"a","text/html":"<b>","image/png":"x","text/odd":7}`), &texts); err != nil || len(texts) != 2 || texts["text/html"] != "<b>" {
		t.Errorf("texts are %v, %v", texts, err)
	}
	for c, want := range map[Completeness]Completeness{
		{"complete", "  "}:                       {"complete", ""},
		{"incomplete", "\t  "}:                   {"incomplete", "\t  "},
		{"incomplete", "rm -rf /"}:               {"incomplete", ""},
		{"incomplete", strings.Repeat(" ", 101)}: {"incomplete", ""},
		{"surely", "x"}:                          {"unknown", ""},
	} {
		if got := c.Bounded(); got != want {
			t.Errorf("%+v becomes %+v, want %+v", c, got, want)
		}
	}
	for c, want := range map[[2]int]bool{{0, 0}: true, {1, 2}: true, {2, 1}: false, {-1, 1}: false, {0, 3}: false} {
		if got := (Completion{Start: c[0], End: c[1]}).Valid("é€"); got != want {
			t.Errorf("from %d to %d: %v", c[0], c[1], got)
		}
	}
}

// FuzzAnswers has a kernel that answers anything: what is taken keeps to the
// bounds.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"matches":["a"],"cursor_start":0,"cursor_end":1,"status":"incomplete","indent":"  ","found":true,"data":{"text/plain":"x"}}`))
	f.Add([]byte(`{"matches":["\ud800"],"cursor_start":-1,"data":{"text/\ud800":"\udfff"}}`))
	f.Add([]byte(`{"matches":[[],{}],"data":[]}`))
	f.Add([]byte(`{"matches":{"a":1},"cursor_end":1e99,"data":{"text/plain":null}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c Completion
		if json.Unmarshal(b, &c) == nil && len(c.Matches.Texts) > MaxMatches {
			t.Errorf("%d matches", len(c.Matches.Texts))
		}
		for _, m := range c.Matches.Texts {
			if len(m) > 3*MaxMatch || !utf8.ValidString(m) {
				t.Errorf("match %q", m)
			}
		}
		var i Inspection
		_ = json.Unmarshal(b, &i)
		size := 0
		for mime, text := range i.Data {
			if size += len(mime) + len(text); size > MaxInspection || !utf8.ValidString(mime+text) {
				t.Errorf("%d bytes of %q", size, mime)
			}
		}
		var s Completeness
		_ = json.Unmarshal(b, &s)
		if s = s.Bounded(); len(s.Indent) > MaxIndent || s.Status == "" {
			t.Errorf("%+v", s)
		}
	})
}
