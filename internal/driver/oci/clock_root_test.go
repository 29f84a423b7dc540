//go:build root

package oci

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// gVisor's kernel tells the time by itself, from what it has learned of the processor
// in the first milliseconds of a sandbox, and learns more each second: see cmd/runsc.
// All that time it is the host's: what says what time it is never arrives before that,
// and of those of a second one arrives soon after.
func TestClockFromTheFirstMoment(t *testing.T) {
	const early, late, lines = 10 * time.Millisecond, 250 * time.Millisecond, 20
	r := armed(t, start(t, runsc, testSpec(t, sandbox.GVisor)))
	for _, when := range []string{"a new sandbox", "after a wake"} {
		if when == "after a wake" {
			r.do("Sleep", r.d.Sleep(r.ctx, r.h))
			r.do("Wake", r.d.Wake(r.ctx, r.h))
		}
		delays := r.clock(t, lines)
		if len(delays) != lines {
			t.Fatalf("%s: it said %d times what time it is", when, len(delays))
		}
		for i, d := range delays {
			if d < -early {
				t.Errorf("%s: its clock is %s fast after %d tenths of a second", when, -d, i)
			}
		}
		for from := 0; from < lines; from += 10 {
			if least := slices.Min(delays[from : from+10]); least > late {
				t.Errorf("%s: its clock is %s slow after %d tenths of a second", when, least, from)
			}
		}
	}
}

// clock returns how much later each line of the sandbox's clock arrives than it says
// that it is.
func (r *running) clock(t *testing.T, lines int) (delays []time.Duration) {
	t.Helper()
	g := r.guest(t)
	s, err := g.Exec(g.ctx, sandbox.NewUID(), &guest.Start{ExecSpec: sandbox.ExecSpec{Shell: "/workspace/attack clock " + itoa(lines)}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var out []byte
	for {
		m, err := s.Next()
		if errors.Is(err, io.EOF) {
			return delays
		}
		if err != nil {
			t.Fatal(err)
		}
		if m.Output == nil {
			continue
		}
		for out = append(out, m.Output.Data...); ; {
			line, rest, whole := bytes.Cut(out, []byte("\n"))
			if !whole {
				break
			}
			out = rest
			if ns, err := strconv.ParseInt(string(line), 10, 64); err == nil { // the last one is no time
				delays = append(delays, time.Since(time.Unix(0, ns)))
			}
		}
	}
}
