package lifecycle

import (
	"slices"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestIsKept(t *testing.T) {
	idle := sandbox.Spec{IdlePolicy: sandbox.IdleSleep, IdleTimeout: time.Hour}
	tests := []struct {
		name string
		edit func(*sandbox.Spec, *live.Attention)
		want bool
	}{
		{"idle", func(*sandbox.Spec, *live.Attention) {}, false},
		{"a lease", func(_ *sandbox.Spec, a *live.Attention) { a.Lease = 1 }, true},
		{"a lease that is over", func(_ *sandbox.Spec, a *live.Attention) { a.Lease = -1 }, false},
		{"always on", func(s *sandbox.Spec, _ *live.Attention) { s.IdlePolicy = sandbox.IdleAlwaysOn }, true},
		{"never idle", func(s *sandbox.Spec, _ *live.Attention) { s.IdleTimeout = 0 }, true},
		{"wakes never", func(s *sandbox.Spec, _ *live.Attention) { s.AutoWake = sandbox.AutoWakeNever }, true},
		{"destroyed when idle", func(s *sandbox.Spec, _ *live.Attention) { s.IdlePolicy = sandbox.IdleDestroy }, false},
	}
	for _, tt := range tests {
		spec, use := idle, live.Attention{}
		tt.edit(&spec, &use)
		if got := isKept(spec, use); got != tt.want {
			t.Errorf("%s: isKept = %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestChooseResting(t *testing.T) {
	box := func(id string, unused time.Duration, memory int64, kept bool) resting {
		return resting{run: &live.Run{ID: sandbox.ID(id)}, use: live.Attention{Unused: unused}, memory: memory, kept: kept}
	}
	inUse := box("in-use", time.Hour, 100, false)
	inUse.use.InUse = true
	all := []resting{
		box("new", restAfter-1, 100, false),
		box("kept", 10*time.Hour, 100, true),
		box("light", 5*time.Minute, 10, false),
		box("old", time.Hour, 10, false),
		box("heavy", 5*time.Minute+30*time.Second, 50, false),
		inUse,
	}
	tests := []struct {
		name     string
		shortage admission.Shortage
		need     int64
		want     []string
	}{
		{"no shortage", admission.NoShortage, 1000, nil},
		{"nothing is needed", admission.Short, 0, nil},
		{"the longest unused", admission.Short, 10, []string{"old"}},
		{"of those unused as long the heaviest", admission.Short, 11, []string{"old", "heavy"}},
		{"all that are not kept", admission.Short, 1000, []string{"old", "heavy", "light"}},
		{"kept ones go last", admission.Dire, 71, []string{"old", "heavy", "light", "kept"}},
		{"kept ones stay when the others are enough", admission.Dire, 70, []string{"old", "heavy", "light"}},
	}
	for _, tt := range tests {
		var got []string
		for _, r := range chooseResting(all, tt.shortage, tt.need) {
			got = append(got, string(r.run.ID))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: chooseResting = %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestChooseGivenUp(t *testing.T) {
	at := func(minute int) time.Time { return time.Unix(0, 0).Add(time.Duration(minute) * time.Minute) }
	all := []sleeper{{"b", at(2), 10}, {"a", at(1), 10}, {"d", at(4), 10}, {"c", at(3), 0}}
	tests := []struct {
		limit int64
		want  []sandbox.UID
	}{
		{0, nil}, {100, nil}, {30, nil}, {29, []sandbox.UID{"a"}}, {20, []sandbox.UID{"a"}}, {10, []sandbox.UID{"a", "b"}}, {9, []sandbox.UID{"a", "b", "d"}},
	}
	for _, tt := range tests {
		if got := chooseGivenUp(all, tt.limit); !slices.Equal(got, tt.want) {
			t.Errorf("chooseGivenUp(%d) = %v, want %v", tt.limit, got, tt.want)
		}
	}
}

// What a use does, for every cause.
func TestDecideUse(t *testing.T) {
	wakes := map[sandbox.Cause]bool{
		sandbox.CauseSleep: true, sandbox.CauseIdle: true, sandbox.CauseMemory: true, sandbox.CauseMemoryLost: true,
		sandbox.CauseShutdown: true, sandbox.CauseEvicted: true, sandbox.CauseInterrupted: true,
		sandbox.CauseNone: false, sandbox.CauseRequest: false, sandbox.CauseDied: false, sandbox.CauseOOM: false,
		sandbox.CauseLifetime: false, sandbox.CauseUndone: false,
		sandbox.CauseRollback: false, // whose files it has is to be looked at first
	}
	for cause, idle := range wakes {
		for _, state := range sandbox.States() {
			rests := state == sandbox.Sleeping || state == sandbox.Stopped
			for auto, want := range map[sandbox.AutoWake]bool{
				sandbox.AutoWakeNever:  false,
				sandbox.AutoWakeAlways: rests,
				sandbox.AutoWakeIdle:   rests && (idle || state == sandbox.Sleeping),
				"":                     rests && (idle || state == sandbox.Sleeping),
			} {
				if got := decideUse(state, cause, auto); got != want {
					t.Errorf("decideUse(%s, %q, %q) = %v, want %v", state, cause, auto, got, want)
				}
			}
		}
	}
}
