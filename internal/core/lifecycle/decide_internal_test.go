package lifecycle

import (
	"errors"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestDecideIdle(t *testing.T) {
	hour := live.Attention{Unused: time.Hour}
	long := live.Attention{Unused: 1000 * time.Hour}
	tests := []struct {
		name    string
		policy  sandbox.IdlePolicy
		timeout time.Duration
		use     live.Attention
		want    idleAct
	}{
		{"active", sandbox.IdleStop, time.Hour, live.Attention{Unused: time.Minute}, keepRunning},
		{"idle", sandbox.IdleStop, time.Hour, hour, stopIdle},
		{"in use", sandbox.IdleStop, time.Hour, live.Attention{Unused: 2 * time.Hour, InUse: true}, keepRunning},
		{"no timeout", sandbox.IdleStop, 0, long, keepRunning},
		{"sleep", sandbox.IdleSleep, time.Hour, hour, sleepIdle},
		{"destroy", sandbox.IdleDestroy, time.Hour, hour, destroyIdle},
		{"always on", sandbox.IdleAlwaysOn, time.Hour, long, keepRunning},
		{"unknown policy", "nap", time.Hour, hour, keepRunning},
		{"a lease", sandbox.IdleDestroy, time.Hour, live.Attention{Unused: 5 * time.Hour, Lease: 1}, keepRunning},
		{"a lease that is over", sandbox.IdleDestroy, time.Hour, live.Attention{Unused: 5 * time.Hour, Lease: -1}, destroyIdle},
		{"a lease that was over before the timeout is", sandbox.IdleStop, time.Hour, live.Attention{Unused: time.Minute, Lease: -time.Second}, keepRunning},
	}
	for _, tt := range tests {
		spec := sandbox.Spec{IdlePolicy: tt.policy, IdleTimeout: tt.timeout}
		if got := decideIdle(spec, tt.use); got != tt.want {
			t.Errorf("%s: decideIdle = %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestDecideLifetime(t *testing.T) {
	tests := []struct {
		limit, age time.Duration
		want       bool
	}{
		{0, 1000 * time.Hour, false},
		{time.Hour, time.Hour - 1, false},
		{time.Hour, time.Hour, true},
		{time.Hour, 2 * time.Hour, true},
		{time.Hour, -time.Hour, false},
	}
	for _, tt := range tests {
		if got := decideLifetime(tt.limit, tt.age); got != tt.want {
			t.Errorf("decideLifetime(%s, %s) = %v, want %v", tt.limit, tt.age, got, tt.want)
		}
	}
}

// What is known of a sandbox's birth does not move with the wall clock.
func TestLifetimesDoNotFollowTheClock(t *testing.T) {
	born := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	b := sandbox.Sandbox{UID: "a", State: sandbox.Running, CreatedAt: born, Spec: sandbox.Spec{MaxLifetime: time.Hour}}
	var l lifetimes
	l.note(b, born.Add(10*time.Minute), time.Minute) // a daemon that came later
	l.note(b, born.Add(500*time.Hour), 2*time.Minute)
	if got := l.over(51*time.Minute - 1); len(got) != 0 {
		t.Errorf("after 59 minutes %v are over", got)
	}
	if got := l.over(51 * time.Minute); len(got) != 1 {
		t.Errorf("after 60 minutes %v are over, want a", got)
	}
	b.Spec.MaxLifetime = 2 * time.Hour
	l.note(b, born, 51*time.Minute)
	if got := l.over(111*time.Minute - 1); len(got) != 0 {
		t.Errorf("with more time %v are over", got)
	}
	if got := l.over(111 * time.Minute); len(got) != 1 {
		t.Errorf("after the new time %v are over, want a", got)
	}
	b.State = sandbox.Destroyed
	l.note(b, born, 51*time.Minute)
	if got := l.over(1000 * time.Hour); len(got) != 0 {
		t.Errorf("of those that ended %v are over", got)
	}
}

func TestDecideLease(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) time.Time { return now.Add(d) }
	seconds := func(d time.Duration) *time.Duration { return &d }
	tests := []struct {
		name     string
		k        Keepalive
		held     time.Time
		lifetime time.Duration
		want     time.Time
		changes  bool
		err      error
	}{
		{"activity", Keepalive{}, at(time.Hour), 0, at(time.Hour), false, nil},
		{"until", Keepalive{Until: at(time.Hour)}, time.Time{}, 0, at(time.Hour), true, nil},
		{"seconds", Keepalive{For: seconds(time.Minute)}, time.Time{}, 0, at(time.Minute), true, nil},
		{"longer", Keepalive{Until: at(2 * time.Hour)}, at(time.Hour), 0, at(2 * time.Hour), true, nil},
		{"shorter", Keepalive{Until: at(time.Minute)}, at(time.Hour), 0, at(time.Hour), false, nil},
		{"the same", Keepalive{Until: at(time.Hour)}, at(time.Hour), 0, at(time.Hour), false, nil},
		{"given up", Keepalive{For: seconds(0)}, at(time.Hour), 0, time.Time{}, true, nil},
		{"nothing to give up", Keepalive{For: seconds(0)}, time.Time{}, 0, time.Time{}, false, nil},
		{"beyond the lifetime", Keepalive{Until: at(5 * time.Hour)}, time.Time{}, time.Hour, at(time.Hour), true, nil},
		{"past", Keepalive{Until: at(-time.Second)}, time.Time{}, 0, time.Time{}, false, errs.Invalid},
		{"now", Keepalive{Until: now}, time.Time{}, 0, time.Time{}, false, errs.Invalid},
		{"in a thousand years", Keepalive{Until: at(time.Duration(1<<63 - 1))}, time.Time{}, 0, time.Time{}, false, errs.Invalid},
		{"negative", Keepalive{For: seconds(-1)}, time.Time{}, 0, time.Time{}, false, errs.Invalid},
		{"too many seconds", Keepalive{For: seconds(sandbox.MaxDuration + 1)}, time.Time{}, 0, time.Time{}, false, errs.Invalid},
	}
	for _, tt := range tests {
		b := sandbox.Sandbox{CreatedAt: now, Spec: sandbox.Spec{KeptUntil: tt.held, MaxLifetime: tt.lifetime}}
		got, changes, err := decideLease(tt.k, now, b)
		if !errors.Is(err, tt.err) || changes != tt.changes || err == nil && !got.Equal(tt.want) {
			t.Errorf("%s: decideLease = %s, %v, %v; want %s, %v, %v", tt.name, got, changes, err, tt.want, tt.changes, tt.err)
		}
	}
}
