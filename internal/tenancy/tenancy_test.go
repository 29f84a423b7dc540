package tenancy

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
)

func TestPlaces(t *testing.T) {
	p := NewPlaces("chairs that are taken", Bound{All: 8, Tenant: 3, Reserved: 2})
	leaves := make(map[string]func())
	for i, step := range []struct {
		tenant string
		ok     bool
	}{
		{"a", true}, {"a", true}, {"a", true}, {"a", false}, // its share
		{"b", true}, {"b", true}, {"b", false}, // as many as are left to all
		{"c", true}, {"b", false}, {"d", false}, // all that tenants may have
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
	if _, err := p.Enter("d"); err != nil {
		t.Errorf("Enter after a leave = %v", err)
	}
	if _, err := p.Enter("e"); err == nil {
		t.Error("a leave that was called twice freed two places")
	}
	for _, leave := range leaves {
		leave()
	}
	if p.Held("a") != 2 || p.Held("b") != 1 || p.held.total != 5 {
		t.Errorf("held = %v, want two of a, one of b, one of d and one of none", p.held.tenants)
	}
}

// However many sandboxes of a tenant, or of none, take all that they can, one
// more gets some.
func TestPlacesOfManySandboxes(t *testing.T) {
	for _, tenant := range []string{"", "a"} {
		p := NewPlaces("chairs", Bound{All: 256, Tenant: 128})
		took := func(box string) (n int) {
			for {
				if _, err := p.EnterFor(tenant, box); err != nil {
					if !errors.Is(err, errs.OverQuota) {
						t.Error(err)
					}
					return n
				}
				n++
			}
		}
		all := map[string]int{"": 256, "a": 128}[tenant]
		if n := took("0"); n != all/2 {
			t.Errorf("of tenant %q one sandbox got %d of %d", tenant, n, all)
		}
		for i := 1; i <= 6; i++ {
			if n := took(strconv.Itoa(i)); n == 0 {
				t.Errorf("of tenant %q sandbox %d got none", tenant, i)
			}
		}
	}
}

func TestTurns(t *testing.T) {
	turns := NewTurns(Bound{All: 5, Tenant: 2, Reserved: 1})
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
	if !busy("b") || busy("c") || busy("") {
		t.Error("a tenant has more turns than are left, or keeps others from theirs")
	}
	fourth := hold("c")
	if !busy("d") || busy("") {
		t.Error("tenants have more turns than all may, or those of no tenant")
	}
	waiting := make(chan func())
	go func() { waiting <- hold("a") }()
	first()
	third()
	(<-waiting)()
	second()
	fourth()
	none := hold("")
	if !busy("") || busy("a") {
		t.Error("what belongs to no tenant has more turns than are reserved")
	}
	none()
	if len(turns.held.tenants) != 0 || len(turns.queues) != 0 {
		t.Errorf("held are %v, and %d wait", turns.held.tenants, len(turns.queues))
	}
}

// A sandbox whose turns do not end, and that waits for more, keeps none of the
// others from theirs; who waits gets one when there is one, and who goes is
// forgotten.
func TestTurnsOfManySandboxes(t *testing.T) {
	for _, tenant := range []string{"", "a"} {
		turns := NewTurns(Bound{All: 18, Tenant: 6, Reserved: 6})
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan func(), 20)
		var waiting sync.WaitGroup
		for range 20 {
			waiting.Go(func() {
				if done, err := turns.TakeFor(ctx, tenant, "greedy"); err == nil {
					got <- done
				}
			})
		}
		dones := []func(){<-got, <-got, <-got}
		for i := range 2 {
			done, err := turns.TakeFor(t.Context(), tenant, strconv.Itoa(i))
			if err != nil {
				t.Fatal(err)
			}
			dones = append(dones, done)
		}
		dones[0]() // no more than are left: it does not get that one again
		turns.mu.Lock()
		if n := turns.held.ones[holder{tenant, "greedy"}]; n != 2 {
			t.Errorf("of tenant %q a sandbox has %d turns where two are left, want 2", tenant, n)
		}
		turns.mu.Unlock()
		dones[3]()
		dones[4]()
		dones[1]()
		dones = []func(){dones[2], <-got, <-got}
		cancel()
		waiting.Wait()
		for _, done := range dones {
			done()
		}
		close(got)
		for done := range got {
			done()
		}
		if len(turns.held.tenants) != 0 || len(turns.held.ones) != 0 || len(turns.queues) != 0 {
			t.Errorf("held are %v, and %d wait", turns.held.tenants, len(turns.queues))
		}
	}
}
