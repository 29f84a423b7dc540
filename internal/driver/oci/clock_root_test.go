//go:build root

package oci

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// gVisor's kernel tells the time by itself, from what it has learned of the processor
// in the first milliseconds of a sandbox, and learns more each second: see cmd/runsc.
// All that time it is the host's.
func TestClockFromTheFirstMoment(t *testing.T) {
	const off = 10 * time.Millisecond
	r := armed(t, start(t, runsc, testSpec(t, sandbox.GVisor)))
	for _, when := range []string{"a new sandbox", "after a wake"} {
		last := time.Now()
		n, out := r.attack("sandbox", "clock", 25)
		end := time.Now()
		if n != 25 {
			t.Fatalf("%s: %s", when, out)
		}
		for _, line := range strings.Fields(out)[:25] {
			ns, err := strconv.ParseInt(line, 10, 64)
			said := time.Unix(0, ns)
			if err != nil || said.Before(last.Add(-off)) || said.After(end.Add(off)) {
				t.Errorf("%s: it says that it is %s, between %s and %s", when, said, last, end)
			}
			last = said
		}
		if err := r.d.Sleep(r.ctx, r.h); err != nil {
			t.Fatal(err)
		}
		if err := r.d.Wake(r.ctx, r.h); err != nil {
			t.Fatal(err)
		}
	}
}
