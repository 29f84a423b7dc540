package gate_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/errs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCallsWaitUntilTheGateIsOpen: and goroutines run before it is.
func TestCallsWaitUntilTheGateIsOpen(t *testing.T) {
	g := gate.New()
	if g.Spawn(func(context.Context) { t.Error("a goroutine ran before Begin") }) {
		t.Error("Spawn before Begin = true")
	}
	if g.Context().Err() == nil {
		t.Error("the context goes on before Begin")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := g.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	if err := g.Begin(ctx); !errors.Is(err, errs.Internal) {
		t.Errorf("the second Begin = %v", err)
	}
	early, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	if _, err := g.Enter(early); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Enter of a closed gate = %v", err)
	}
	spawned := make(chan struct{})
	if !g.Spawn(func(context.Context) { close(spawned) }) {
		t.Fatal("Spawn = false")
	}
	<-spawned
	g.Open()
	leave, err := g.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	leave()
	g.End(cancel)
}

// TestTheEndWaitsForCallsAndGoroutines: new ones are refused meanwhile.
func TestTheEndWaitsForCallsAndGoroutines(t *testing.T) {
	g := gate.New()
	ctx, cancel := context.WithCancel(t.Context())
	if err := g.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	g.Open()
	leave, err := g.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	goroutine := make(chan struct{})
	g.Spawn(func(ctx context.Context) {
		<-ctx.Done()
		close(goroutine)
	})
	ended := make(chan struct{})
	go func() {
		g.End(cancel)
		close(ended)
	}()
	<-g.Ended()
	<-goroutine
	if _, err := g.Enter(t.Context()); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Enter after the end = %v", err)
	}
	if g.Spawn(func(context.Context) {}) {
		t.Error("Spawn after the end = true")
	}
	select {
	case <-ended:
		t.Error("the end did not wait for a call")
	case <-time.After(10 * time.Millisecond):
	}
	leave()
	<-ended
}

func TestPauseDoubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []time.Duration
		for pauses := gate.NewPauses(); len(all) < 9; {
			began := time.Now()
			gate.Pause(t.Context(), pauses)
			all = append(all, time.Since(began))
		}
		if all[0] != gate.RetryFirst || all[1] != 2*gate.RetryFirst || all[8] != gate.RetryLast {
			t.Errorf("pauses %v", all)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		if gate.Pause(ctx, gate.NewPauses()); time.Since(began) > 0 {
			t.Error("a pause goes on after the context's end")
		}
	})
}
