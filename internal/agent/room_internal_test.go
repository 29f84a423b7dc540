package agent

import (
	"context"
	"errors"
	"testing"
)

// TestRoom: small states wait for nobody, large ones for their tenant's and for all.
func TestRoom(t *testing.T) {
	const mib = 1 << 20
	r := newRoom(8 * mib)
	ended, end := context.WithCancel(t.Context())
	end()
	take := func(tenant string, n int64) func() {
		t.Helper()
		leave, err := r.enter(t.Context(), tenant, n)
		if err != nil {
			t.Fatal(err)
		}
		return leave
	}
	full := func(tenant string, n int64) {
		t.Helper()
		if _, err := r.enter(ended, tenant, n); !errors.Is(err, context.Canceled) {
			t.Errorf("%d bytes of %s: %v, want to wait", n, tenant, err)
		}
	}
	a := take("a", 3*mib)
	full("a", 2*mib)
	take("a", small)()
	b := take("b", 100*mib) // as much as a tenant may have
	full("c", 2*mib)
	take("c", mib)()

	got := make(chan error)
	go func() {
		leave, err := r.enter(context.WithoutCancel(ended), "c", 3*mib)
		if err == nil {
			leave()
		}
		got <- err
	}()
	b()
	b() // nothing more
	if err := <-got; err != nil {
		t.Error(err)
	}
	a()
	if r.used != 0 || len(r.held) != 0 {
		t.Errorf("%d bytes are held, by %v", r.used, r.held)
	}
	if _, err := newRoom(0).enter(ended, "a", 100*mib); err != nil {
		t.Errorf("a room without bound: %v", err)
	}
}
