package sandbox_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestKeptCutsLongTexts(t *testing.T) {
	long := strings.Repeat("é", 500_000)
	many := make([]string, 100_000)
	for name, x := range map[string]sandbox.ExecSpec{
		"shell":           {Shell: long},
		"an argument":     {Argv: []string{"echo", long, "more"}},
		"many arguments":  {Argv: append([]string{"echo"}, many...)},
		"code":            {Cell: &sandbox.Cell{Code: long}},
		"detail":          {Argv: []string{"git"}, Detail: json.RawMessage(`{"message":"` + long + `","path":"/workspace"}`)},
		"several details": {Argv: []string{"git"}, Detail: json.RawMessage(`{"a":"` + long + `","b":"` + long + `"}`)},
	} {
		kept, ok := x.Kept()
		text, err := json.Marshal(kept)
		if err != nil || !ok || len(text) > 8*sandbox.KeptText || !strings.Contains(string(text), "not kept]") {
			t.Errorf("%s: %d bytes, %v, %v: %.100s", name, len(text), ok, err, text)
		}
		if strings.ContainsRune(string(text), '\uFFFD') {
			t.Errorf("%s: a character was split", name)
		}
	}
	short := sandbox.ExecSpec{Shell: "true", Detail: json.RawMessage(`{"a":"b"}`)}
	if kept, ok := short.Kept(); ok || kept.Shell != "true" || string(kept.Detail) != `{"a":"b"}` {
		t.Errorf("a short one became %+v", kept)
	}
}

// TestBriefDoesNotSayWhatIsKept: a list shows the beginning of a long command,
// of which all is kept while it runs, and what was kept after it.
func TestBriefDoesNotSayWhatIsKept(t *testing.T) {
	long := strings.Repeat("é", 500_000)
	kept, _ := sandbox.ExecSpec{Shell: long}.Kept()
	for name, x := range map[string]sandbox.ExecSpec{
		"shell":        {Shell: long},
		"kept":         kept,
		"an argument":  {Argv: []string{"echo", long, "more"}},
		"code":         {Cell: &sandbox.Cell{Code: long}},
		"a long field": {Argv: []string{"git"}, Detail: json.RawMessage(`{"message":"` + long + `"}`)},
	} {
		text, err := json.Marshal(sandbox.Exec{Spec: x}.Brief().Spec)
		if err != nil || len(text) > 10_000 || !strings.Contains(string(text), `…"`) || strings.Contains(string(text), "kept") {
			t.Errorf("%s: %d bytes, %v: %.60s … %s", name, len(text), err, text, text[max(0, len(text)-60):])
		}
	}
}
