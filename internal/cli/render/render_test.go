package render

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/client"
)

func TestImagesOfTerminals(t *testing.T) {
	tests := []struct {
		environ string
		want    ImageProtocol
	}{
		{"TERM=xterm-256color", NoImages},
		{"TERM=xterm-kitty", KittyImages},
		{"TERM=xterm-256color TERM_PROGRAM=ghostty", KittyImages},
		{"TERM=xterm-256color TERM_PROGRAM=iTerm.app", ITermImages},
		{"TERM=xterm-256color TERM_PROGRAM=WezTerm", ITermImages},
		{"TERM=tmux-256color TERM_PROGRAM=iTerm.app", NoImages},
		{"TERM=xterm-kitty TMUX=/tmp/tmux", NoImages},
	}
	for _, tt := range tests {
		getenv := func(name string) string {
			for _, kv := range strings.Fields(tt.environ) {
				if k, v, _ := strings.Cut(kv, "="); k == name {
					return v
				}
			}
			return ""
		}
		if got := ProtocolOf(getenv); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.environ, got, tt.want)
		}
	}
	if got := KittyImages.draw("image/png", make([]byte, 4096)); strings.Count(got, "\x1b_G") != 2 ||
		!strings.HasPrefix(got, "\x1b_Ga=T,f=100,m=1;") || !strings.Contains(got, "\x1b\\\x1b_Gm=0;") {
		t.Errorf("an image in two pieces is %q", got)
	}
	if got, want := ITermImages.draw("image/jpeg", []byte("abc")), "\x1b]1337;File=inline=1;size=3:YWJj\a"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, p := range []ImageProtocol{NoImages, KittyImages} {
		if got := p.draw("image/jpeg", []byte("abc")); got != "" {
			t.Errorf("%v draws %q", p, got)
		}
	}
}

func TestShownValues(t *testing.T) {
	raw := func(s string) json.RawMessage { b, _ := json.Marshal(s); return b }
	dir := t.TempDir()
	tests := []struct {
		value      client.Bundle
		want, file string
	}{
		{client.Bundle{"text/plain": raw("   a\n0  1"), "text/html": raw("<table>")}, "   a\n0  1\n", ""},
		{client.Bundle{"text/html": raw("<p>")}, "box-3-1.html\n", "<p>"},
		{client.Bundle{"text/html": raw("<div>"), "text/plain": raw("Figure"), "application/vnd.plotly.v1+json": raw("{}")}, "box-3-1.html\n", "<div>"},
		{client.Bundle{"image/svg+xml": raw("<svg/>"), "text/plain": raw("plot")}, "box-3-1.svg\n", "<svg/>"},
		{client.Bundle{"image/png": raw("***"), "text/plain": raw("broken")}, "broken\n", ""},
		{client.Bundle{"application/json": json.RawMessage(`{"a":1}`)}, "{\"a\":1}\n", ""},
		{client.Bundle{"text/markdown": raw("# a")}, "# a\n", ""},
		{client.Bundle{"application/x-\x1bodd": raw("a")}, "note: application/x-?odd\n", ""},
		{nil, "", ""},
	}
	for _, tt := range tests {
		var out strings.Builder
		s := New(Options{
			Out: &out, ErrOut: &out, Box: "box", Dir: dir,
			Note: func(_ string, args ...any) { fmt.Fprintf(&out, "note: %s\n", args...) },
		})
		if err := s.value(3, tt.value); err != nil {
			t.Fatal(err)
		}
		if got := strings.ReplaceAll(out.String(), dir+"/", ""); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.value, got, tt.want)
		}
		if tt.file != "" {
			if got, err := os.ReadFile(filepath.Join(dir, strings.TrimSpace(tt.want))); string(got) != tt.file {
				t.Errorf("the file has %q, %v; want %q", got, err, tt.file)
			}
		}
	}
}
