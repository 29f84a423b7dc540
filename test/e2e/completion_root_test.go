//go:build root

package e2e_test

import (
	"slices"
	"strings"
	"testing"

	sdk "github.com/cubbyhq/cubby/client"
)

// TestCompletion asks the kernels of the images about code that is not run.
func TestCompletion(t *testing.T) {
	t.Parallel()
	limits := sdk.CreateOptions{Limits: &sdk.Limits{MemoryBytes: 1 << 30}}
	eachIsolation(t, limits, func(t *testing.T, _ realHost, c *sdk.Client) {
		limits.ID, limits.Image, limits.Isolation = "r", "r", strings.TrimPrefix(t.Name(), "TestCompletion/")
		if _, err := c.Create(t.Context(), limits); err != nil {
			t.Fatal(err)
		}
		for _, q := range []struct {
			id, kernel, defines string
			complete, match     string // at the end of the code
			inspect, text       string
			open                string // code that goes on
		}{
			{"a", "python", "def größe(a):\n    'How large it is.'\nthing = 'x'", "'π'; thing.starts", "startswith", "größe", "How large it is.", "def f():"},
			{"a", "node", "function größe(a) { return a }; const thing = 'x'", "'π'; thing.starts", "startsWith", "größe", "Signature: größe(a)", "function f() {"},
			{"r", "r", "thing <- list(inner = 7)", "'π'; thin", "thing", "median", "Median Value", "f <- function() {"},
		} {
			if e, err := c.RunCode(t.Context(), q.id, sdk.CodeRequest{Language: q.kernel, Code: q.defines}); err != nil || !e.Success {
				t.Fatalf("%s: %+v, %v", q.kernel, e.Error, err)
			}
			got, err := c.CompleteCode(t.Context(), q.id, q.kernel, sdk.CodePosition{Code: q.complete})
			if end := len([]rune(q.complete)); err != nil || got.CursorEnd != end || got.CursorStart >= end ||
				!slices.ContainsFunc(got.Matches, func(m string) bool { return strings.HasPrefix(m, q.match) }) {
				t.Errorf("%s: %s can go on as %+v, %v", q.kernel, q.complete, got, err)
			}
			info, err := c.InspectCode(t.Context(), q.id, q.kernel, sdk.CodePosition{Code: q.inspect}, 0)
			if err != nil || !info.Found || !strings.Contains(info.Text(), q.text) {
				t.Errorf("%s: %s is %+v, %v", q.kernel, q.inspect, info, err)
			}
			info, err = c.InspectCode(t.Context(), q.id, q.kernel, sdk.CodePosition{Code: "nothing_of_this_name"}, 0)
			if err != nil || info.Found || info.Text() != "" {
				t.Errorf("%s: nothing is %+v, %v", q.kernel, info, err)
			}
			for code, want := range map[string]string{"1 + 1": "complete", q.open: "incomplete", "1 )": "invalid"} {
				if got, err := c.CheckCode(t.Context(), q.id, q.kernel, code); err != nil || got.Status != want {
					t.Errorf("%s: %s is %+v, %v; want %s", q.kernel, code, got, err, want)
				}
			}
		}
	})
}
