package bench

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cubbyhq/cubby/client"
)

const (
	forkGoal     = 1.2 // of as many restores, two at once
	rollbackGoal = 1.3 // of a delete and a restore
)

// fork measures how long it takes to fork a sandbox with a Python process in it, and
// to roll it back, beside what gVisor's own restore takes of the same process.
func (b *bench) fork(ctx context.Context) error {
	n := b.count(20, 4)
	s := b.report.section("fork", "Fork and rollback")
	s.Note = fmt.Sprintf("The floor of a fork is %d times `runsc restore`, two at once; that of a rollback is `runsc delete` and `runsc restore`.", n)
	if err := b.keepsMemory(); err != nil {
		return err
	}
	list := b.runtimes()
	defer closeRuntimes(list)
	p, err := b.newPair(ctx, list, heaps()[0])
	if err != nil {
		return err
	}
	defer p.remove()
	snapshot, err := b.client.CreateSnapshot(ctx, p.id, client.SnapshotOptions{Memory: true})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		if err := b.client.RemoveSnapshot(ctx, snapshot.ID); err != nil {
			b.note("remove the snapshot: %v", err)
		}
	}()
	var restores, replaced, forks, paused, rollbacks sample
	for range b.count(5, 1) {
		if many, one, ok := p.ofFloor(func(c *checkpointed) (_, _ time.Duration, _ error) { return c.restores(ctx, n) }); ok {
			restores.add(many)
			replaced.add(one)
		}
		b.rested(ctx)
		took, stood, err := b.forkOnce(ctx, p.id, n)
		if err != nil {
			return err
		}
		forks.add(took)
		paused.add(stood)
		b.rested(ctx)
		back, err := timed(func() error {
			_, err := b.client.Rollback(ctx, p.id, snapshot.ID)
			return err
		})
		if err != nil {
			return err
		}
		rollbacks.add(back)
	}
	floorOfForks, fork := fmt.Sprintf("runsc restore × %d", n), fmt.Sprintf("fork 1 → %d", n)
	s.times(floorOfForks, restores, 0)
	s.times(fork, forks, 0)
	s.within(fork, floorOfForks, forkGoal)
	s.times("the parent stands still", paused, 0)
	s.times("runsc delete and restore", replaced, 0)
	s.times("rollback", rollbacks, 0)
	s.within("rollback", "runsc delete and restore", rollbackGoal)
	return nil
}

// forkOnce forks a sandbox and removes what came of it.
func (b *bench) forkOnce(ctx context.Context, id string, n int) (took, paused time.Duration, err error) {
	var forked client.Forked
	took, err = timed(func() (err error) {
		forked, err = b.client.Fork(ctx, id, n)
		return err
	})
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	for _, box := range forked.Sandboxes {
		if err := b.client.Destroy(undo, box.ID); err != nil {
			b.note("destroy a fork: %v", err)
		}
	}
	return took, time.Duration(forked.PausedMillis) * time.Millisecond, err
}

// restores times n restores of the process, two at once, and then what takes its
// place.
func (c *checkpointed) restores(ctx context.Context, n int) (many, one time.Duration, err error) {
	image, err := c.emptyImage()
	if err != nil {
		return 0, 0, err
	}
	if err := c.runtime.call(ctx, "checkpoint", "--leave-running", "--image-path="+image, c.id); err != nil {
		return 0, 0, err
	}
	clone := func(i int) *checkpointed {
		return &checkpointed{runtime: c.runtime, bundle: c.bundle, dir: c.dir, id: fmt.Sprintf("floor-fork-%010d", i)}
	}
	defer func() {
		for i := range n {
			_ = c.runtime.call(context.WithoutCancel(ctx), "delete", "--force", clone(i).id)
		}
	}()
	many, err = timed(func() error {
		var g errgroup.Group
		g.SetLimit(2)
		for i := range n {
			g.Go(func() error { return clone(i).detached(ctx, "restore", "--image-path="+image) })
		}
		return g.Wait()
	})
	if err != nil {
		return 0, 0, err
	}
	one, err = timed(func() error {
		if err := c.runtime.call(ctx, "delete", "--force", c.id); err != nil {
			return err
		}
		return c.detached(ctx, "restore", "--image-path="+image)
	})
	return many, one, err
}
