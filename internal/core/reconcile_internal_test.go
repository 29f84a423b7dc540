package core

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

var update = flag.Bool("update", false, "rewrite golden files")

// The whole rule of the reconciler, for every state and phase.
func TestDecide(t *testing.T) {
	var b strings.Builder
	for _, state := range sandbox.States() {
		for _, attached := range []bool{false, true} {
			for _, phase := range []driver.Phase{"", driver.PhaseCreated, driver.PhaseRunning, driver.PhaseDead, driver.PhaseGone} {
				o := observation{state: state, attached: attached, phase: phase}
				fmt.Fprintf(&b, "%-10s attached=%-5v phase=%-8q %s\n", state, attached, phase, decide(o))
				if phase == "" && state != sandbox.Creating && decide(o) != leaveIt {
					t.Errorf("decide(%+v) = %s, want that nothing is done about what could not be read", o, decide(o))
				}
			}
		}
	}
	golden := filepath.Join("testdata", "decide.txt")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || b.String() != string(want) {
		t.Errorf("the rule has changed (%v); look at it and run with -update:\n%s", err, b.String())
	}
}

func TestOrphans(t *testing.T) {
	got := orphans([]sandbox.UID{"a", "b", "c"}, map[sandbox.UID]bool{"b": true})
	if want := []sandbox.UID{"a", "c"}; !slices.Equal(got, want) {
		t.Errorf("orphans = %v, want %v", got, want)
	}
	if got := orphans(nil, nil); len(got) != 0 {
		t.Errorf("orphans of nothing = %v", got)
	}
}

func TestParseSignal(t *testing.T) {
	for _, name := range []string{"SIGINT", "INT", "int", "sigint"} {
		if sig, err := parseSignal(name); err != nil || sig != 2 {
			t.Errorf("parseSignal(%q) = %d, %v, want 2", name, sig, err)
		}
	}
	for _, name := range []string{"", "SIG", "9", "SIGNOPE", "SIGSIGINT"} {
		if sig, err := parseSignal(name); err == nil {
			t.Errorf("parseSignal(%q) = %d, want an error", name, sig)
		}
	}
}
