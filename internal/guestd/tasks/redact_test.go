package tasks

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/task"
)

func TestRedactor(t *testing.T) {
	t.Parallel()
	r := newRedactor([]string{
		"API_KEY=abcdefgh", "my_password=abcdefghij", "TOKEN=short", "PATH=/usr/bin", "DATABASE=postgres://u:p@h", "EMPTY_SECRET=",
		"PEM_KEY=-----BEGIN KEY-----\nAAAABBBBCCCCDDDD\nEEEE\n-----END KEY-----",
	}, []string{"DATABASE"})
	for _, tt := range []struct{ text, want string }{
		{"abcdefgh", "[API_KEY]"},
		{"abcdefghij", "[my_password]"},
		{"xabcdefghix", "x[API_KEY]ix"},
		{"abcdefgabcdefgh", "abcdefg[API_KEY]"},
		{"short /usr/bin", "short /usr/bin"},
		{"at postgres://u:p@h/x", "at [DATABASE]/x"},
		{"+AAAABBBBCCCCDDDD\n+EEEE", "+[PEM_KEY]\n+EEEE"},
		{`-----BEGIN KEY-----\nAAAABBBBCCCCDDDD\nEEEE\n-----END KEY-----`, "[PEM_KEY]"},
		{"", ""},
	} {
		if got := r.text(tt.text); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.text, got, tt.want)
		}
	}
}

// However a text is cut into pieces, it is shown the same, and never the secret.
func FuzzRedactor(f *testing.F) {
	f.Add("the abcabcabd is", "abcabcabd", uint8(3))
	f.Add("aaaaaaaaaaab", "aaaaaaab", uint8(1))
	f.Fuzz(func(t *testing.T, text, secret string, size uint8) {
		r := newRedactor([]string{"A_SECRET=" + secret}, nil)
		whole := r.text(text)
		var pieces strings.Builder
		held := ""
		for rest := text; rest != ""; {
			n := min(len(rest), int(size)+1)
			var clean string
			clean, held = r.split(held+rest[:n], false)
			pieces.WriteString(clean)
			rest = rest[n:]
		}
		clean, _ := r.split(held, true)
		pieces.WriteString(clean)
		if pieces.String() != whole {
			t.Errorf("in pieces %q, whole %q", pieces.String(), whole)
		}
	})
}

func TestFit(t *testing.T) {
	t.Parallel()
	for _, s := range []string{strings.Repeat("\x00", 1000), strings.Repeat("ä\"\n", 1000), strings.Repeat("\xff", 1000), strings.Repeat("\u2028", 500), "plain"} {
		for _, n := range []int{0, 1, 10, 100, 10_000} {
			if got := escaped(fit(s, n)); len(got) > n {
				t.Errorf("%.10q…: %d bytes, want at most %d", s, len(got), n)
			}
		}
	}
}

// What a task prints is bounded: pieces and outputs go first, its end never.
func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := newRecorder(&out, newRedactor(nil, nil), 0)
	r.written = r.thinFrom
	r.record(task.DeltaType, &task.Delta{Text: "a piece"})
	r.record(task.ToolType, &task.Tool{Name: "bash", Output: "an output"})
	if got := out.String(); strings.Contains(got, "a piece") || strings.Contains(got, "an output") || !strings.Contains(got, "bash") {
		t.Errorf("thin: %s", got)
	}
	r.written = r.scarceFrom
	out.Reset()
	r.record(task.MessageType, &task.Message{Text: "a message"})
	r.record(task.BuildType, &task.Build{OK: true})
	if got := out.String(); strings.Contains(got, "a message") || !strings.Contains(got, "build_ok") {
		t.Errorf("scarce: %s", got)
	}
	r.written = r.limit
	out.Reset()
	r.record(task.BuildType, &task.Build{OK: true})
	r.phase(task.PhaseHealth, "")
	r.record(task.DoneType, &task.Result{ID: "x"})
	if got := out.String(); strings.Contains(got, `"type":"build"`) || !strings.Contains(got, "health_check") || !strings.Contains(got, `"id":"x"`) {
		t.Errorf("full: %s", got)
	}
}

// The time in which a sandbox slept does not count, and neither does a clock that
// goes back.
func TestCountdown(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	steps := []time.Duration{time.Second, time.Hour, -time.Hour, time.Second, time.Second, 0}
	ticks := make(chan time.Time, len(steps))
	for range steps {
		ticks <- at
	}
	begun := true
	now := func() time.Time {
		if begun {
			begun = false
			return at
		}
		at, steps = at.Add(steps[0]), steps[1:]
		return at
	}
	// 1 s, 2 s of the hour, nothing, 1 s, 1 s
	if !countdown(t.Context(), 5*time.Second, now, ticks) {
		t.Error("the limit was not reached")
	}
	if len(steps) != 1 {
		t.Errorf("it was reached %d ticks before the end", len(steps))
	}
}
