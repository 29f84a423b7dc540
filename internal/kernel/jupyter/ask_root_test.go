//go:build root

package jupyter

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/kernel"
)

func TestQuestions(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, _ := start(t, "python3")
	execute(t, c, "class Thing:\n    größe = 1\n    def method(self, a):\n        'What it does.'\nthing = Thing()")
	for code, want := range map[string]struct {
		match string
		start int
	}{
		"thing.met":       {"method", 6},
		"'π'; thing.grö":  {"größe", 11},
		"import sys, thi": {"this", 12},
	} {
		got, err := c.Complete(ctx, code, len([]rune(code)))
		if err != nil || !slices.Contains(got.Matches.Texts, want.match) || got.Start != want.start || got.End != len([]rune(code)) {
			t.Errorf("%s: %+v, %v", code, got, err)
		}
	}
	if got, err := c.Inspect(ctx, "thing.method(", 13, 0); err != nil || !got.Found || !strings.Contains(got.Data["text/plain"], "What it does.") {
		t.Errorf("thing.method is %+v, %v", got, err)
	}
	if got, err := c.Inspect(ctx, "nothing", 7, 0); err != nil || got.Found {
		t.Errorf("nothing is %+v, %v", got, err)
	}
	for code, want := range map[string]kernel.Completeness{
		"1 + 1": {Status: "complete"},
		"if x:": {Status: "incomplete", Indent: "    "},
		"1 )":   {Status: "invalid"},
	} {
		if got, err := c.Check(ctx, code); err != nil || got != want {
			t.Errorf("%s is %+v, %v", code, got, err)
		}
	}
}

// TestUnknownNamesOfR: IRkernel finds every name, and says that it has no help.
func TestUnknownNamesOfR(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, _ := start(t, "ir")
	execute(t, c, "thing <- list(inner = 7)")
	for name, want := range map[string]string{"nothing_of_this_name": "", "thing": "inner", "median": "odd, robust"} {
		got, err := c.Inspect(ctx, name, len(name), 0)
		if text := got.Data["text/plain"]; err != nil || got.Found != (want != "") || !strings.Contains(text, want) ||
			strings.Contains(text, "No documentation") || want == "" && len(got.Data) != 0 {
			t.Errorf("%s is %+v, %v", name, got, err)
		}
	}
}

// A kernel is code of the sandbox: it answers what it likes.
func TestHostileAnswers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, _ := start(t, "python3")
	answer := func(content string) {
		t.Helper()
		execute(t, c, "async def nonsense(*args, **kwargs): return "+content+"\nkernel = get_ipython().kernel\n"+
			"kernel.do_complete = kernel.do_inspect = kernel.do_is_complete = nonsense")
	}
	for _, content := range []string{
		"{'matches': 7}", "{'matches': [7], 'cursor_start': 0, 'cursor_end': 0}", "{'matches': [], 'cursor_start': -1, 'cursor_end': 1}",
		"{'matches': [], 'cursor_start': 0, 'cursor_end': 99}", "{'matches': [], 'cursor_start': 10**30, 'cursor_end': 0}", "{'status': 'error', 'ename': 'E' * 10_000_000}",
		"{'matches': ['x' * 30_000_000], 'cursor_start': 0, 'cursor_end': 0}", "{'matches': [], 'cursor_start': '0', 'cursor_end': {}}",
	} {
		answer(content)
		if got, err := c.Complete(ctx, "ab", 2); err == nil || len(err.Error()) > 500 || errors.Is(err, kernel.ErrGone) {
			t.Errorf("%s: %v, %.200v", content, got, err)
		}
	}
	answer("{'matches': ['x'] * 500_000, 'cursor_start': 0, 'cursor_end': 0}")
	if got, err := c.Complete(ctx, "ab", 2); err != nil || len(got.Matches.Texts) != kernel.MaxMatches || !got.Matches.More {
		t.Errorf("many matches: %d, %v", len(got.Matches.Texts), err)
	}
	answer("{'found': True, 'data': {'text/plain': 'x' * 10_000_000, 'text/html': 'y' * 1_000_000, 'image/png': 'z'}}")
	if got, err := c.Inspect(ctx, "ab", 2, 0); err != nil || len(got.Data) != 1 || len(got.Data["text/plain"]) > kernel.MaxInspection {
		t.Errorf("a long text: %d, %v", len(got.Data["text/plain"]), err)
	}
	for _, content := range []string{"{'status': 7}", "{'status': 'error', 'ename': 'E'}"} {
		answer(content)
		if got, err := c.Check(ctx, "ab"); err == nil {
			t.Errorf("%s: %+v", content, got)
		}
	}
	answer("{'status': 'perhaps', 'indent': 'x'}")
	if got, err := c.Check(ctx, "ab"); err != nil || got.Status != "unknown" || got.Indent != "" {
		t.Errorf("an unknown status: %+v, %v", got, err)
	}
	if s, _ := execute(t, c, "6 * 7"); s.Result != "42" {
		t.Errorf("the next cell is %+v", s)
	}
}
