package services

import (
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestWhatBecomesOfAServiceThatEnded(t *testing.T) {
	code := func(n int) *int { return &n }
	exited := func(n int, took time.Duration) end { return end{reason: sandbox.EndExited, code: code(n), took: took} }
	for _, tt := range []struct {
		name   string
		policy sandbox.RestartPolicy
		is     sandbox.ServiceState
		end    end
		phase  sandbox.ServicePhase
		quick  int
		tries  int
	}{
		{"a quick end", "", sandbox.ServiceState{}, exited(1, time.Second), sandbox.ServiceBackoff, 1, 1},
		{"always also after success", sandbox.RestartAlways, sandbox.ServiceState{}, exited(0, time.Second), sandbox.ServiceBackoff, 1, 1},
		{"the fourth quick end", "", sandbox.ServiceState{Quick: 3, Tries: 3}, exited(1, time.Second), sandbox.ServiceBackoff, 4, 4},
		{"the fifth", "", sandbox.ServiceState{Quick: 4, Tries: 4}, exited(1, quickRun-1), sandbox.ServiceFailed, 5, 4},
		{"a run of ten seconds", "", sandbox.ServiceState{Quick: 4, Tries: 4}, exited(1, quickRun), sandbox.ServiceBackoff, 0, 5},
		{"a calm run", "", sandbox.ServiceState{Quick: 4, Tries: 9}, exited(1, calmRun), sandbox.ServiceBackoff, 0, 1},
		{"killed", "", sandbox.ServiceState{}, end{reason: sandbox.EndKilled, code: code(137)}, sandbox.ServiceBackoff, 1, 1},
		{"how is not known", sandbox.RestartOnFailure, sandbox.ServiceState{}, end{reason: sandbox.EndLost}, sandbox.ServiceBackoff, 1, 1},
		{"success, on failure", sandbox.RestartOnFailure, sandbox.ServiceState{Quick: 2}, exited(0, time.Hour), sandbox.ServiceStopped, 0, 0},
		{"failure, on failure", sandbox.RestartOnFailure, sandbox.ServiceState{}, exited(1, time.Hour), sandbox.ServiceBackoff, 0, 1},
		{"out of memory, on failure", sandbox.RestartOnFailure, sandbox.ServiceState{}, end{reason: sandbox.EndOOM, code: code(0)}, sandbox.ServiceBackoff, 1, 1},
		{"never", sandbox.RestartNever, sandbox.ServiceState{}, exited(1, time.Second), sandbox.ServiceStopped, 0, 0},
		{"with its sandbox", "", sandbox.ServiceState{Quick: 4}, end{reason: sandbox.EndStopped}, sandbox.ServiceBackoff, 4, 1},
	} {
		got := after(tt.policy, tt.is, tt.end)
		if got.Phase != tt.phase || got.Quick != tt.quick || got.Tries != tt.tries || (got.Reason != "") != (tt.phase == sandbox.ServiceFailed) {
			t.Errorf("%s: %+v, want %s with quick %d and tries %d", tt.name, got, tt.phase, tt.quick, tt.tries)
		}
	}
}

func TestPausesDoubleToThirtySeconds(t *testing.T) {
	for tries, want := range []time.Duration{1, 1, 2, 4, 8, 16, 30, 30} {
		if got := pause(tries); got != want*time.Second {
			t.Errorf("pause(%d) = %v, want %v", tries, got, want*time.Second)
		}
	}
	if pause(1000) != lastPause {
		t.Error("a long row of ends overflows")
	}
}
