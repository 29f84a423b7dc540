package toolset

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/tools"
)

// However long the texts of code are, the model reads all that it is to know, as
// JSON of a bounded size.
func TestCodeOfAnySize(t *testing.T) {
	for name, c := range map[string]string{"letters": "x", "control": "\x01", "quotes": `"`, "emoji": "\U0001F600"} {
		t.Run(name, func(t *testing.T) {
			long := strings.Repeat(c, 100_000)
			total := int64(5_100_000)
			v := tools.Executed{
				Stdout: long + "the end", Stderr: long, Result: &tools.Value{Text: long},
				Error:     &tools.CodeError{Type: "E", Message: long, Traceback: long},
				Truncated: map[string]int64{"stdout": total},
			}
			for i := range 100 {
				v.DisplayOutputs = append(v.DisplayOutputs, tools.Display{Type: "text/plain", Data: fmt.Sprint(i, long)})
			}
			thread := &Thread{Toolset: &Toolset{base: func() string { return "" }}}
			r := thread.result(tools.Answer{
				Value: v, Session: "s", Exec: 1, Again: "it slept badly",
				Stdout: tools.Printed{Cut: total - 100_007, End: c + "the end"},
			})
			if len(r.Content) > maxContent || r.Failed {
				t.Fatalf("%d bytes", len(r.Content))
			}
			var out struct {
				Stdout, Stderr string
				Error          tools.CodeError
				Summary        []string         `json:"display_outputs_summary"`
				Displays       json.RawMessage  `json:"display_outputs"`
				Again          string           `json:"session_restarted"`
				Truncated      map[string]int64 `json:"truncated"`
			}
			if err := json.Unmarshal([]byte(r.Content), &out); err != nil {
				t.Fatal(err)
			}
			if strings.Count(out.Stdout, "truncated") != 1 || !strings.HasSuffix(out.Stdout, "the end") || !strings.Contains(out.Stdout, fmt.Sprint(total, " chars total")) || out.Truncated["stdout"] != total {
				t.Errorf("stdout ends with %q", out.Stdout[max(0, len(out.Stdout)-80):])
			}
			if !strings.Contains(out.Stderr, "100000 chars total") || out.Displays != nil || out.Again != "it slept badly" {
				t.Errorf("the rest is %.200v", out)
			}
			if n := len(out.Summary); n != maxSummaries+1 || out.Summary[n-1] != "[50 more outputs displayed to user]" || !strings.HasPrefix(out.Summary[0], "[text/plain output displayed to user]\n0") {
				t.Errorf("%d summaries, the last is %q", n, out.Summary[n-1])
			}
		})
	}
}

// Output that comes in any pieces is told whole, and in whole characters.
func FuzzFeed(f *testing.F) {
	f.Add([]byte("aä\u2028\U0001F600\xff"), []byte{1, 2, 3, 1, 130})
	f.Fuzz(func(t *testing.T, text, sizes []byte) {
		told := map[string]string{}
		feed := newFeed(func(_, stream, text string) {
			if !utf8.ValidString(text) || text == "" {
				t.Errorf("%q is told", text)
			}
			told[stream] += text
		})
		want := map[string]string{}
		for i := 0; len(text) > 0; i++ {
			n, stream := 1, sandbox.Stdout
			if i < len(sizes) {
				n = max(1, int(sizes[i]&0x7f))
				if sizes[i] >= 128 {
					stream = sandbox.Stderr
				}
			}
			n = min(n, len(text))
			want[stream.String()] += string(text[:n])
			feed.heard(tools.Said{Session: "s", Stream: stream, Data: text[:n]})
			text = text[n:]
		}
		feed.end()
		for stream, want := range want {
			if utf8.ValidString(want) && told[stream] != want {
				t.Errorf("%s: %q is told of %q", stream, told[stream], want)
			}
		}
	})
}

// What nobody bounds before is bounded at the end, and artifacts are too.
func TestResultOfAnySize(t *testing.T) {
	thread := &Thread{Toolset: &Toolset{base: func() string { return "" }}}
	for _, failed := range []bool{false, true} {
		r := thread.result(tools.Answer{Value: struct{ Text string }{strings.Repeat("x", 1<<20)}, Failed: failed})
		var out struct{ Success bool }
		if err := json.Unmarshal([]byte(r.Content), &out); err != nil || len(r.Content) > maxContent || r.Failed != failed || out.Success == failed {
			t.Errorf("failed %v: %d bytes, %+v, %v", failed, len(r.Content), out, err)
		}
	}
	v := tools.Executed{}
	for range 200 {
		v.DisplayOutputs = append(v.DisplayOutputs, tools.Display{Type: "text/html", Data: strings.Repeat("<", 8<<10)})
	}
	if r := thread.result(tools.Answer{Value: v}); len(r.Artifact) > 2*allInline {
		t.Errorf("the artifact has %d bytes", len(r.Artifact))
	}
}
