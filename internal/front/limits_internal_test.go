package front

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/errs"
)

func TestOpenRequestsAreBounded(t *testing.T) {
	l := new(limits)
	var leaves []func()
	enter := func(name string) error {
		leave, err := l.enter(client{token: name})
		if err == nil {
			leaves = append(leaves, leave)
		}
		return err
	}
	for range maxOpenPerClient {
		if err := enter("a"); err != nil {
			t.Fatal(err)
		}
	}
	if err := enter("a"); !errors.Is(err, errs.OverQuota) || errs.Public(err).RetryAfter <= 0 {
		t.Errorf("one more of a client = %v, want over quota with a time to retry", err)
	}
	for i := range maxOpen - maxOpenPerClient {
		if err := enter(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := enter("b"); !errors.Is(err, errs.OverQuota) {
		t.Errorf("one more of all = %v, want over quota", err)
	}
	for _, leave := range leaves {
		leave()
	}
	if err := enter("a"); err != nil {
		t.Errorf("after all have left: %v", err)
	}
	leaves[len(leaves)-1]()
	if l.total != 0 || len(l.open) != 0 {
		t.Errorf("counted are %d, %v, want nothing", l.total, l.open)
	}
}

func TestWrongTokensAreBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	l := &Guesses{now: func() time.Time { return now }}
	for range guessBurst {
		if err := l.Wrong("192.0.2.1:1234"); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		remote  string
		refused bool
	}{
		{"192.0.2.1:9", true},
		{"[::ffff:192.0.2.1]:9", true}, // the same address
		{"192.0.2.2:1234", false},
		{"[2001:db8::1]:1", false},
		{"nonsense", false},
	} {
		if err := l.Wrong(tt.remote); errors.Is(err, errs.OverQuota) != tt.refused {
			t.Errorf("a guess from %s = %v, want refused: %v", tt.remote, err, tt.refused)
		}
	}
	for i := range guessBurst - 1 {
		if err := l.Wrong(fmt.Sprintf("[2001:db8::%x]:1", i+2)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Wrong("[2001:db8::ffff:1]:1"); !errors.Is(err, errs.OverQuota) {
		t.Errorf("a guess from another address of the network = %v, want over quota", err)
	}
	now = now.Add(guessEvery)
	if err := l.Wrong("192.0.2.1:9"); err != nil {
		t.Errorf("a second later: %v", err)
	}
	for i := range maxGuessers {
		_ = l.Wrong(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255))
	}
	if len(l.guessers) > maxGuessers {
		t.Errorf("%d addresses are remembered", len(l.guessers))
	}
}

// TestTokensOfATenantTakeEveryConnection: a tenant's tokens share one bound, and
// all tenants together leave room for the operator.
func TestTokensOfATenantTakeEveryConnection(t *testing.T) {
	l := new(limits)
	fill := func(p auth.Principal) (n int) {
		for ; n <= maxOpen; n++ {
			if _, err := l.enter(clientOf(p, "192.0.2.1:1")); err != nil {
				if !errors.Is(err, errs.OverQuota) {
					t.Fatal(err)
				}
				break
			}
		}
		return n
	}
	if n := fill(auth.Principal{Name: "web", Tenant: "acme"}); n != maxOpenPerClient {
		t.Errorf("the first token of a tenant gets %d requests, want %d", n, maxOpenPerClient)
	}
	if n := fill(auth.Principal{Name: "worker", Tenant: "acme"}); n != 0 {
		t.Errorf("another token of the tenant gets %d requests more", n)
	}
	for i := range maxOpen / maxOpenPerClient {
		fill(auth.Principal{Name: "t", Tenant: fmt.Sprint("tenant-", i)})
	}
	if want := maxOpen - operatorOpen; l.tenants != want {
		t.Errorf("all tenants together have %d requests, want %d", l.tenants, want)
	}
	if n := fill(auth.Principal{Name: "operator"}); n != operatorOpen {
		t.Errorf("the operator gets %d requests beside them, want %d", n, operatorOpen)
	}
}
