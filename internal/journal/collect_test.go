package journal

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// TestCollectKeepsBothEnds: a build says what went wrong in its last lines.
func TestCollectKeepsBothEnds(t *testing.T) {
	const all = 300_000
	var text strings.Builder
	for i := range all {
		text.WriteByte("0123456789abcdefghijklmnopqrstuvwxyz\n"[i%37])
	}
	j := openDir(t, t.TempDir(), Limits{})
	box := sandbox.NewUID()
	l := create(t, j, box, 1)
	for rest := text.String(); rest != ""; {
		n := min(7001, len(rest))
		write(t, l, sandbox.Stdout, rest[:n])
		rest = rest[n:]
	}
	write(t, l, sandbox.Stderr, "short")
	for _, limit := range []int64{1, 2, 99, 4096, 100_001, all - 1, all, all + 1, -1} {
		c, err := j.Collect(t.Context(), box, 1, Caps{Stdout: limit, Stderr: 100, Ends: true})
		if err != nil {
			t.Fatal(err)
		}
		if string(c.Stderr) != "short" || c.StderrEnd != nil || c.StderrCut != 0 {
			t.Errorf("to %d: stderr is %q and %q without %d", limit, c.Stderr, c.StderrEnd, c.StderrCut)
		}
		if limit < 0 || limit >= all {
			if string(c.Stdout) != text.String() || c.StdoutEnd != nil || c.StdoutCut != 0 {
				t.Errorf("to %d: %d and %d bytes without %d, want all", limit, len(c.Stdout), len(c.StdoutEnd), c.StdoutCut)
			}
			continue
		}
		if !strings.HasPrefix(text.String(), string(c.Stdout)) || !strings.HasSuffix(text.String(), string(c.StdoutEnd)) ||
			int64(len(c.Stdout)) != limit-limit/2 || int64(len(c.StdoutEnd)) != limit/2 || c.StdoutCut != all-limit {
			t.Errorf("to %d: %d and %d bytes without %d", limit, len(c.Stdout), len(c.StdoutEnd), c.StdoutCut)
		}
	}
}

// TestCollectShowsNoEndThatIsNone: what a log has no room for came last, so that its
// last bytes are not the end of the output.
func TestCollectShowsNoEndThatIsNone(t *testing.T) {
	j := openDir(t, t.TempDir(), Limits{PerExec: 1000})
	box := sandbox.NewUID()
	l := create(t, j, box, 1)
	write(t, l, sandbox.Stdout, strings.Repeat("x", 2000))
	c, err := j.Collect(t.Context(), box, 1, Caps{Stdout: 100, Stderr: 100, Ends: true})
	if err != nil || !bytes.Equal(c.Stdout, bytes.Repeat([]byte("x"), 50)) || c.StdoutEnd != nil || c.StdoutCut != 1950 {
		t.Errorf("%d and %d bytes without %d, %v", len(c.Stdout), len(c.StdoutEnd), c.StdoutCut, err)
	}
}
