package repair

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
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
			for _, phase := range []driver.Phase{"", driver.PhaseCreated, driver.PhaseRunning, driver.PhaseAsleep, driver.PhaseDead, driver.PhaseGone} {
				o := Observation{State: state, Attached: attached, Phase: phase}
				fmt.Fprintf(&b, "%-10s attached=%-5v phase=%-8q %s\n", state, attached, phase, Decide(o))
				if phase == "" && state != sandbox.Creating && Decide(o) != Leave {
					t.Errorf("Decide(%+v) = %s, want that nothing is done about what could not be read", o, Decide(o))
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

// A memory that is kept is taken away from nobody but one whose row says that it
// was given up.
func TestDecideAboutMemory(t *testing.T) {
	for state, want := range map[sandbox.State]Action{
		sandbox.Running: Rest, sandbox.Sleeping: Leave, sandbox.Stopped: Clear, sandbox.Creating: Abandon,
	} {
		if got := Decide(Observation{State: state, Phase: driver.PhaseAsleep}); got != want {
			t.Errorf("of one that is %s and asleep: %s, want %s", state, got, want)
		}
	}
	if !Lose.Final() {
		t.Error("a sleeping one loses its memory by what was seen a while ago")
	}
}

func TestMayRemove(t *testing.T) {
	tests := []struct {
		name string
		t    Trace
		want bool
	}{
		{"never known", Trace{}, true},
		{"destroyed", Trace{Owner: sandbox.Destroyed}, true},
		{"failed", Trace{Owner: sandbox.Failed}, true},
		{"creating", Trace{Owner: sandbox.Creating}, false},
		{"running", Trace{Owner: sandbox.Running}, false},
		{"sleeping", Trace{Owner: sandbox.Sleeping}, false},
		{"stopped", Trace{Owner: sandbox.Stopped}, false},
		{"nobody could say", Trace{Unreadable: true}, false},
		{"somebody is at it", Trace{Owner: sandbox.Destroyed, Held: true}, false},
		{"kept", Trace{Owner: sandbox.Destroyed, Wanted: true}, false},
	}
	for _, tt := range tests {
		if got := MayRemove(tt.t); got != tt.want {
			t.Errorf("%s: MayRemove = %v, want %v", tt.name, got, tt.want)
		}
	}
}
