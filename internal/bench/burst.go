package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// burst creates many sandboxes at once. All must come up and run a command.
func (b *bench) burst(ctx context.Context) error {
	s := b.report.section("burst", "Creates at once, each with its first command")
	sizes := []int{1, 10, 100}
	if b.Quick {
		sizes = []int{1, 10}
	}
	for _, isolation := range b.Isolations {
		for _, n := range sizes {
			if err := b.burstOf(ctx, s, isolation, n); err != nil {
				return fmt.Errorf("%d × %s: %w", n, isolation, err)
			}
		}
	}
	return nil
}

func (b *bench) burstOf(ctx context.Context, s *Section, isolation string, n int) error {
	var mu sync.Mutex
	var times sample
	var failed []error
	var removes []func()
	began := time.Now()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			t := time.Now()
			id, remove, err := b.box(ctx, isolation)
			if err == nil {
				err = b.run1(ctx, id)
			}
			took := time.Since(t)
			mu.Lock()
			defer mu.Unlock()
			if remove != nil {
				removes = append(removes, remove)
			}
			if err != nil {
				failed = append(failed, err)
				return
			}
			times.add(took)
		})
	}
	all.Wait()
	took := time.Since(began)
	var group errgroup.Group
	group.SetLimit(16)
	began = time.Now()
	for _, remove := range removes {
		group.Go(func() error { remove(); return nil })
	}
	_ = group.Wait() // remove reports for itself
	gone := time.Since(began)

	name := fmt.Sprintf("%s × %d", isolation, n)
	s.times(name, times, 0)
	if n > 1 {
		s.value(name+": creates", "/s", float64(len(times))/took.Seconds(), len(times), 0, false)
		s.value(name+": destroys", "/s", float64(len(removes))/gone.Seconds(), len(removes), 0, false)
	}
	s.value(name+": succeeded", "", float64(len(times)), n, float64(n), true)
	if len(failed) > 0 {
		b.note("%s: %d failed: %v", name, len(failed), errors.Join(failed[:1]...))
	}
	return nil
}
