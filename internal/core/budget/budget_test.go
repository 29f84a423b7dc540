package budget

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

type memory struct{}

func (memory) Charge(context.Context, int64) error         { return nil }
func (memory) Hold(context.Context, int64) (func(), error) { return func() {}, nil }

// However many lists are asked for at once, few are in memory before they are
// charged.
func TestFewListsAreReadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(memory{})
		var dones []func()
		for range reads.Reserved {
			done, err := b.Turn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			dones = append(dones, done)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { _, err := b.Turn(ctx); ended <- err }()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("one more has its turn: %v", err)
		default:
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("who gives up waiting: %v", err)
		}
		go func() {
			done, err := b.Turn(t.Context())
			if err == nil {
				done()
			}
			ended <- err
		}()
		for _, done := range dones {
			done()
		}
		if err := <-ended; err != nil {
			t.Errorf("the next: %v", err)
		}
	})
}
