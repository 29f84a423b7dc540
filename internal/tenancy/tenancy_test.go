package tenancy

import (
	"context"
	"errors"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
)

func TestPlaces(t *testing.T) {
	p := NewPlaces("chairs that are taken", Bound{All: 6, Tenant: 3, Reserved: 2})
	leaves := make(map[string]func())
	for i, step := range []struct {
		tenant string
		ok     bool
	}{
		{"a", true}, {"a", true}, {"a", true}, {"a", false}, // its share
		{"b", true}, {"b", false}, {"c", false}, // all that tenants may have
		{"", true}, {"", true}, {"", false},
	} {
		leave, err := p.Enter(step.tenant)
		if (err == nil) != step.ok || err != nil && (!errors.Is(err, errs.OverQuota) || errs.Public(err).RetryAfter == 0) {
			t.Errorf("%d: Enter(%q) = %v, want %v", i, step.tenant, err, step.ok)
		}
		if err == nil {
			leaves[step.tenant] = leave
		}
	}
	leaves["a"]()
	leaves["a"]() // it counts once
	if _, err := p.Enter("c"); err != nil {
		t.Errorf("Enter after a leave = %v", err)
	}
	if _, err := p.Enter("b"); err == nil {
		t.Error("a leave that was called twice freed two places")
	}
	for _, leave := range leaves {
		leave()
	}
	if p.Held("a") != 2 || p.Held("b") != 0 || len(p.held) != 3 {
		t.Errorf("held = %v, want two of a, one of c and one of none", p.held)
	}
}

func TestTurns(t *testing.T) {
	turns := NewTurns(Bound{All: 4, Tenant: 2, Reserved: 1})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	// busy reports whether there is no turn at once.
	busy := func(tenant string) bool {
		t.Helper()
		for range 100 { // an ended context may lose against a turn that is free
			done, err := turns.Take(gone, tenant)
			if err == nil {
				done()
				return false
			}
		}
		return true
	}
	hold := func(tenant string) func() {
		t.Helper()
		done, err := turns.Take(t.Context(), tenant)
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	first, second := hold("a"), hold("a")
	if !busy("a") || busy("b") || busy("") {
		t.Error("a tenant with all its turns has more, or keeps others from theirs")
	}
	third := hold("b")
	if !busy("b") || !busy("c") || busy("") {
		t.Error("tenants have more turns than all may, or those of no tenant")
	}
	waiting := make(chan func())
	go func() { waiting <- hold("a") }()
	first()
	(<-waiting)()
	second()
	third()
	none := hold("")
	if !busy("") || busy("a") {
		t.Error("what belongs to no tenant has more turns than are reserved")
	}
	none()
	if len(turns.own) != 0 {
		t.Errorf("%d tenants are still known", len(turns.own))
	}
}
