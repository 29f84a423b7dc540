package bench

import (
	"context"
	"fmt"
	"time"
)

// firstCommand are the goals of a create with its first command, in ms.
var firstCommand = map[string]float64{"gvisor": 120, "container": 20}

// floorOf names the bare runtime below an isolation.
var floorOf = map[string]string{"gvisor": "runsc run", "container": "crun run"}

// create measures from the request for a sandbox to the answer of its first
// command. Floor and cubby take turns, so that what else the machine does
// falls on all alike.
func (b *bench) create(ctx context.Context) error {
	list := b.runtimes()
	defer closeRuntimes(list)
	bundle, err := b.bundle("true", "/bin/true")
	if err != nil {
		return err
	}
	engine := b.docker
	times := map[string]*sample{}
	measure := func(name string, fn func() error) {
		if times[name] == nil {
			times[name] = &sample{}
		}
		d, err := timed(fn)
		if err != nil {
			b.once("%s: %v", name, err)
			return
		}
		times[name].add(d)
	}
	// The first round fills caches and is not counted.
	for i := range b.count(30, 5) + 1 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if i == 1 {
			times = map[string]*sample{}
		}
		for _, r := range list {
			measure(r.name+" run", func() error { return r.run(ctx, bundle, fmt.Sprintf("floor-%s-%06d", r.name, i)) })
		}
		if engine != nil {
			measure("docker run", func() error { return engine.run(ctx) })
		}
		for _, isolation := range b.Isolations {
			b.createOnce(ctx, isolation, measure, times)
		}
	}
	s := b.report.section("create", "Create to first command")
	for _, r := range list {
		s.times(r.name+" run", deref(times[r.name+" run"]), 0)
	}
	s.times("docker run", deref(times["docker run"]), 0)
	for _, isolation := range b.Isolations {
		s.times(isolation+": create, first command", deref(times[isolation+": create, first command"]), firstCommand[isolation])
		s.over(isolation+": create, first command", floorOf[isolation])
		s.times(isolation+": create alone", deref(times[isolation+": create"]), 0)
		s.over(isolation+": create alone", floorOf[isolation])
		s.times(isolation+": destroy", deref(times[isolation+": destroy"]), 0)
	}
	s.Note = "A bare runtime runs `true` and removes its container; cubby creates the sandbox with its disk, connects to its agent, runs `true` and answers over HTTP."
	return nil
}

func (b *bench) createOnce(ctx context.Context, isolation string, measure func(string, func() error), times map[string]*sample) {
	var id string
	var remove func()
	began := time.Now()
	measure(isolation+": create", func() (err error) {
		id, remove, err = b.box(ctx, isolation)
		return err
	})
	if id == "" {
		return
	}
	if err := b.run1(ctx, id); err != nil {
		b.once("%s: first command: %v", isolation, err)
	} else {
		if times[isolation+": create, first command"] == nil {
			times[isolation+": create, first command"] = &sample{}
		}
		times[isolation+": create, first command"].add(time.Since(began))
	}
	measure(isolation+": destroy", func() error { return b.client.Destroy(ctx, id) })
	remove()
}

// once notes a problem that repeats only once.
func (b *bench) once(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for _, n := range b.report.Notes {
		if n == text {
			return
		}
	}
	b.note("%s", text)
}

func deref(s *sample) sample {
	if s == nil {
		return nil
	}
	return *s
}
