package bench

import (
	"context"
	"fmt"
)

// execGoal is the goal of a round trip of `true`, in ms.
var execGoal = map[string]float64{"gvisor": 4, "container": 1.5}

// exec measures the round trip of `true` in a sandbox that runs, beside the
// exec of the bare runtimes.
func (b *bench) exec(ctx context.Context) error {
	s := b.report.section("exec", "Round trip of `true` in a running sandbox")
	list := b.runtimes()
	defer closeRuntimes(list)
	bundle, err := b.bundle("sleep", "/bin/sleep", "3600")
	if err != nil {
		return err
	}
	slow, fast := b.count(50, 10), b.count(500, 50)
	for _, r := range list {
		id := fmt.Sprintf("floor-%s-exec00", r.name)
		if err := r.call(ctx, "run", "--detach", "--bundle="+bundle, id); err != nil {
			b.note("%s exec: %v", r.name, err)
			continue
		}
		v, err := repeat(ctx, slow, func() error { return r.call(ctx, "exec", id, "/bin/true") })
		if err != nil {
			b.note("%s exec: %v", r.name, err)
		}
		if err := r.call(context.WithoutCancel(ctx), "delete", "--force", id); err != nil {
			b.note("%s delete: %v", r.name, err)
		}
		s.times(r.name+" exec", v, 0)
	}
	if b.docker != nil {
		b.dockerExec(ctx, b.docker, s, slow)
	}
	for _, isolation := range b.Isolations {
		id, remove, err := b.box(ctx, isolation)
		if err != nil {
			return err
		}
		v, err := repeat(ctx, fast, func() error { return b.run1(ctx, id) })
		remove()
		if err != nil {
			return err
		}
		name := isolation + ": exec"
		s.times(name, v, execGoal[isolation])
		s.over(name, map[string]string{"gvisor": "runsc exec", "container": "crun exec"}[isolation])
	}
	s.Note = "The bare runtimes start a process of their own for each exec; cubby asks the agent inside."
	return nil
}

func (b *bench) dockerExec(ctx context.Context, engine *docker, s *Section, n int) {
	id, remove, err := engine.background(ctx)
	if err != nil {
		b.note("docker exec: %v", err)
		return
	}
	defer remove()
	v, err := repeat(ctx, n, func() error { return engine.exec(ctx, id) })
	if err != nil {
		b.note("docker exec: %v", err)
	}
	s.times("docker exec", v, 0)
}

// repeat times n calls after some that are not counted.
func repeat(ctx context.Context, n int, fn func() error) (sample, error) {
	var v sample
	warm := min(n/10+1, 20)
	for i := range n + warm {
		if ctx.Err() != nil {
			return v, ctx.Err()
		}
		d, err := timed(fn)
		if err != nil {
			return v, err
		}
		if i >= warm {
			v.add(d)
		}
	}
	return v, nil
}
