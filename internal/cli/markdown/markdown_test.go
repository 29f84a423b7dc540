package markdown_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/cli/markdown"
)

var update = flag.Bool("update", false, "rewrite golden files")

// shown is a text as a terminal gets it, written in the pieces that cut makes of it.
func shown(t testing.TB, text string, columns int, colors bool, cut func(string) (piece, rest string)) string {
	t.Helper()
	var out strings.Builder
	r := markdown.New(&out, markdown.Options{Columns: func() int { return columns }, Colors: colors})
	before := ""
	for text != "" {
		var piece string
		piece, text = cut(text)
		if n, err := r.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
		if !strings.HasPrefix(out.String(), before) {
			t.Fatal("what was printed has changed")
		}
		before = out.String()
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func whole(text string) (string, string)    { return text, "" }
func bytewise(text string) (string, string) { return text[:1], text[1:] }

// at cuts a text once.
func at(n int) func(string) (string, string) {
	first := true
	return func(text string) (string, string) {
		if first && n < len(text) {
			first = false
			return text[:n], text[n:]
		}
		return text, ""
	}
}

// readable is output with the escape sequences as words.
func readable(s string) string {
	return regexp.MustCompile("\x1b\\[([0-9;]*)m").ReplaceAllString(s, "⟨$1⟩")
}

// TestGolden shows each text of testdata as it was shown before, however it is cut.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(raw)
		want := shown(t, text, 40, true, whole)
		if got := shown(t, text, 40, true, bytewise); got != want {
			t.Errorf("%s, byte by byte:\n%s\nwant\n%s", file, readable(got), readable(want))
		}
		for n := range len(text) {
			if got := shown(t, text, 40, true, at(n)); got != want {
				t.Fatalf("%s, cut at %d:\n%s\nwant\n%s", file, n, readable(got), readable(want))
			}
		}
		all := readable(want) + "--- without colours\n" + shown(t, text, 40, false, whole)
		golden := strings.TrimSuffix(file, ".md") + ".txt"
		if *update {
			if err := os.WriteFile(golden, []byte(all), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		have, err := os.ReadFile(golden)
		if err != nil || string(have) != all {
			t.Errorf("%s is shown as\n%s\nwant (%v)\n%s", file, all, err, have)
		}
	}
}

func TestInline(t *testing.T) {
	for text, want := range map[string]string{
		"a **b c** d":              "a ⟨1⟩b c ⟨0⟩d",
		"a **b c":                  "a **b c",
		"*a **b** c*":              "⟨3⟩a ⟨0⟩⟨1;3⟩b ⟨0⟩⟨3⟩c⟨0⟩",
		"**a *b***":                "⟨1⟩a ⟨0⟩⟨1;3⟩b⟨0⟩",
		"***a*** b":                "⟨1;3⟩a ⟨0⟩b",
		"2 * 3 * 4":                "2 * 3 * 4",
		"snake_case_name":          "snake_case_name",
		"_a b_ c":                  "⟨3⟩a b ⟨0⟩c",
		"~~a~~ ~b~":                "⟨9⟩a⟨0⟩ ~b~",
		"`a*b*` ``c`d``":           "⟨36⟩a*b* c`d⟨0⟩",
		"**`x` y**":                "⟨1;36⟩x ⟨0⟩⟨1⟩y⟨0⟩",
		"a `b":                     "a `b",
		`\*a\* \x`:                 `*a* \x`,
		"[a b](http://x/(y)) c":    "⟨4⟩a⟨0⟩ ⟨4⟩b⟨0⟩ (⟨2⟩http://x/(y)⟨0⟩) c",
		"[http://x](http://x)":     "⟨4⟩http://x⟨0⟩",
		"![plot](p.png)":           "⟨4⟩plot⟨0⟩ (⟨2⟩p.png⟨0⟩)",
		"a[0] [1](":                "a[0] [1](",
		"<https://x.y> <b>":        "⟨4⟩https://x.y⟨0⟩ <b>",
		"a &lt; b &amp;&lt; &x &l": "a < b &< &x &l",
		"yes!":                     "yes!",
		"end*":                     "end*",
		"\x1b[31mred\x1b]0;t\a\u009b2J\u202eabc\u2066": "[31mred]0;t2Jabc",
		"&#27;[2J": "&#27;[2J",
		"a\xffb":   "a\ufffdb",
	} {
		if got := readable(shown(t, text, 80, true, whole)); got != want+"\n" {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		"aaa bbb ccc ddd":      "aaa bbb\nccc ddd\n",
		"- aaa bbb ccc":        "• aaa bbb\n  ccc\n",
		"> aaa bbb cc":         "│ aaa bbb\n│ cc\n",
		"日本語日本語":               "日本語日本\n語\n",
		"a verylongword!! b":   "a\nverylongword!!\nb\n",
		"12. aaa bbb c":        "12. aaa\n    bbb c\n",
		"  - a bb cc dd":       "  • a bb\n    cc dd\n",
		"\n\n\na\n\n\n\nb\n\n": "a\n\nb\n",
		"---\n":                "──────────\n",
		"":                     "",
		"\n":                   "",
	} {
		if got := shown(t, text, 10, false, whole); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

// TestTextStreams: what is certain is shown at once.
func TestTextStreams(t *testing.T) {
	var out strings.Builder
	r := markdown.New(&out, markdown.Options{})
	for _, step := range []struct{ write, want string }{
		{"Hello wor", "Hello"},
		{"ld, how", "Hello world,"},
		{" are **you", "Hello world, how are"},
		{" all** ", "Hello world, how are you all"},
		{"\n```py", "Hello world, how are you all\n"},
		{"\nx = 1", "Hello world, how are you all\npy\n  x = 1"},
		{"\n``", "Hello world, how are you all\npy\n  x = 1\n"},
		{"`\n| a |\n|", "Hello world, how are you all\npy\n  x = 1\n"},
	} {
		if _, err := r.Write([]byte(step.write)); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); got != step.want {
			t.Fatalf("after %q there is %q, want %q", step.write, got, step.want)
		}
	}
}

// FuzzRender: however a text is cut it is shown the same, and nothing of it acts upon
// the terminal.
func FuzzRender(f *testing.F) {
	files, err := filepath.Glob("testdata/*.md")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), uint8(30), true)
	}
	f.Add("\x1b[31m\u009b|\n|-|\n\r\xf0\x9f", uint8(0), false)
	f.Fuzz(func(t *testing.T, text string, columns uint8, colors bool) {
		if len(text) > 4000 {
			return
		}
		got := shown(t, text, int(columns), colors, bytewise)
		if want := shown(t, text, int(columns), colors, whole); got != want {
			t.Errorf("byte by byte %q, want %q", got, want)
		}
		for _, c := range regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(got, "") {
			if c < ' ' && c != '\n' || c >= 0x7f && c < 0xa0 || c >= 0x202a && c <= 0x202e {
				t.Errorf("%q has %U", got, c)
			}
		}
		if !colors && strings.Contains(got, "\x1b") {
			t.Errorf("%q has styles", got)
		}
		if got != "" && !strings.HasSuffix(got, "\n") {
			t.Errorf("%q does not end its line", got)
		}
	})
}
