//go:build root

package node

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/kernel"
)

const defined = `
const table = { alpha: 1, beta: { gamma: [1, 2, 3] }, get evil() { globalThis.hit = 1; return { x: 1 } } };
let tabular = 5;
class Foo { constructor(a, b = { c: 1 }) {} bar() {} }
function add(a, b) {
  return a + b;
}
const arrow = async x => f(x);
var größe = 'π';
const big = new Array(1e7).fill(0);
const proxy = new Proxy({}, { ownKeys() { globalThis.hit = 2; return [] }, get() { globalThis.hit = 3 } });
function slow() { for (;;); }
`

func TestCompletion(t *testing.T) {
	c, _ := start(t)
	execute(t, c, defined)
	tests := []struct {
		code    string // | is the cursor
		matches string // some of them; "" is none at all
		start   int
	}{
		{"tab|", "table tabular", 0},
		{"x = tab|le + 1", "table tabular", 4},
		{"table.|", "alpha beta evil hasOwnProperty", 6},
		{"table.beta.gamma.ma|", "map", 17},
		{"table?.beta?.gam|", "gamma", 13},
		{"table.beta.gamma[0].toF|", "toFixed", 20},
		{"table . beta . ga|", "gamma", 15},
		{`"abc".sta|`, "startsWith", 6},
		{"[1].fi|", "fill find", 4},
		{"new Map().|", "set get", 10},
		{"add(1, 2).toF|", "toFixed", 10},
		{"Foo.prototype.ba|", "bar", 14},
		{"if (tab) add|", "add", 9},
		{"[...tab|", "table tabular", 4},
		{"`${tab|", "table tabular", 3},
		{"gr|", "größe", 0},
		{"größe.sta|", "startsWith", 6},
		{"'π'; table.al|", "alpha", 11},
		{"big.fi|", "fill", 4},
		{"retu|", "return", 0},
		{"console.lo|", "log", 8},
		// What would have effects, and where there are no names.
		{"table.evil.|", "", 11},
		{"proxy.|", "", 6},
		{"nothing.|", "", 8},
		{"1.|", "", 2},
		{"x = 'tab|", "", 8},
		{"a // tab|", "", 8},
		{"}.|", "", 2},
		{").|", "", 2},
		{".|", "", 1},
	}
	for _, tt := range tests {
		before, after, _ := strings.Cut(tt.code, "|")
		cursor := utf8.RuneCountInString(before)
		got, err := c.Complete(t.Context(), before+after, cursor)
		if err != nil || got.Start != tt.start || got.End != cursor {
			t.Errorf("%s: %d to %d, %v", tt.code, got.Start, got.End, err)
		}
		for _, want := range strings.Fields(tt.matches) {
			if !slices.Contains(got.Matches.Texts, want) {
				t.Errorf("%s: %q lacks %s", tt.code, got.Matches.Texts, want)
			}
		}
		if tt.matches == "" && len(got.Matches.Texts) > 0 {
			t.Errorf("%s: %q", tt.code, got.Matches.Texts)
		}
	}
	if s := execute(t, c, "typeof hit"); s.Result != "undefined" {
		t.Errorf("the questions had effects: hit is %s", s.Result)
	}
	if got, err := c.Complete(t.Context(), "slow().", 7); err == nil {
		t.Errorf("what has no end is %+v", got)
	}
	if _, err := c.Complete(t.Context(), "add", 0); err != nil {
		t.Errorf("at the beginning: %v", err)
	}
}

func TestInspection(t *testing.T) {
	c, _ := start(t)
	execute(t, c, defined)
	tests := []struct {
		code string
		want string // a part; "" is that nothing is found
	}{
		{"add|", "Signature: add(a, b)\nType:      function\nSource:\nfunction add(a, b) {\n  return a + b;\n}"},
		{"a|dd(1)", "Signature: add(a, b)"},
		{"add(|", "Signature: add(a, b)"},
		{"Foo|", "Signature: Foo(a, b = { c: 1 })\nType:      class"},
		{"arrow|", "Signature: arrow(x)"},
		{"table|", "Type:  Object\nValue: { alpha: 1"},
		{"table|", "evil: [Getter]"},
		{"table.beta.gamma|", "Type:  Array"},
		{"parseInt|", "Signature: parseInt(2 parameters)\nType:      native function"},
		{"größe|", "Value: 'π'"},
		{"undefined|", "Type:  undefined"},
		{"proxy|", "Proxy ["},
		{"nothing|", ""},
		{"table.nothing|", ""},
		{"table.evil|", ""},
		{"if|", ""},
		{"|", ""},
	}
	for _, tt := range tests {
		before, after, _ := strings.Cut(tt.code, "|")
		got, err := c.Inspect(t.Context(), before+after, utf8.RuneCountInString(before), 0)
		if err != nil || got.Found != (tt.want != "") || !strings.Contains(got.Data["text/plain"], tt.want) {
			t.Errorf("%s: found %v, %s, %v", tt.code, got.Found, got.Data["text/plain"], err)
		}
	}
	execute(t, c, "var long = new Function(';\\n'.repeat(100))")
	for detail, lines := range []int{40, 110} {
		got, err := c.Inspect(t.Context(), "long", 4, detail)
		if n := strings.Count(got.Data["text/plain"], "\n"); err != nil || n > lines || n < lines-10 {
			t.Errorf("detail %d has %d lines, %v", detail, n, err)
		}
	}
	// Somebody's code that a value brings is ended.
	execute(t, c, "var trap = { get [Symbol.toStringTag]() { for (;;); } }")
	if got, err := c.Inspect(t.Context(), "trap", 4, 0); err == nil {
		t.Errorf("code without an end is %v", got)
	}
	if s := execute(t, c, "1 + 1"); s.Result != "2" || s.Error != "" {
		t.Errorf("the next cell is %+v", s)
	}
	if s := execute(t, c, "typeof hit"); s.Result != "undefined" {
		t.Errorf("the questions had effects: hit is %s", s.Result)
	}
}

func TestCompleteness(t *testing.T) {
	c, _ := start(t)
	for status, codes := range map[string][]string{
		"complete": {"", "1 + 1", "let x", "{a: 1, b: 2}", "await x", "if (await x) {}", "async function f() { await x }", "for await (const x of y) {}", "`a\nb`", "// {"},
		"incomplete": {"f(", "f(a", "f(g(a", "`a", "`a${b", "[1, 2", "{a: 1, b:", "if (x) {", "x =>", "a +", "/* a", "class A {", "try {\n}", "x = {",
			"for await (const x of y) {", "if (await x) {", "f(await x", "const {a,"},
		"invalid": {"f(a b", "'abc", "return 1", "f(await x b", "{foo bar", "a )", "import x from 'y'"},
	} {
		for _, code := range codes {
			if got, err := c.Check(t.Context(), code); err != nil || got != (kernel.Completeness{Status: status}) {
				t.Errorf("%q is %+v, %v; want %s", code, got, err, status)
			}
		}
	}
}
