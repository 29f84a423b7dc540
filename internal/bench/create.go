package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/cubbyhq/cubby/internal/telemetry"
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
	ahead, stop, err := b.beside(ctx, "ahead", "--container-pool=1")
	if err != nil {
		return err
	}
	defer stop()
	cold, stop, err := b.beside(ctx, "cold", "--sentry-pool=0")
	if err != nil {
		return err
	}
	defer stop()
	type row struct {
		of              *bench
		isolation, name string
	}
	var rows []row
	for _, isolation := range b.Isolations {
		rows = append(rows, row{ahead, isolation, isolation})
	}
	if b.Remote == nil {
		for _, isolation := range b.Isolations {
			rows = append(rows, row{cold, isolation, isolation + ", nothing ahead"})
		}
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
		for _, r := range rows {
			r.of.createOnce(ctx, r.isolation, r.name, measure, times)
		}
	}
	s := b.report.section("create", "Create to first command")
	for _, r := range list {
		s.times(r.name+" run", deref(times[r.name+" run"]), 0)
	}
	s.times("docker run", deref(times["docker run"]), 0)
	for _, r := range rows {
		s.times(r.name+": create, first command", deref(times[r.name+": create, first command"]), firstCommand[r.isolation])
		s.over(r.name+": create, first command", floorOf[r.isolation])
		s.times(r.name+": create alone", deref(times[r.name+": create"]), 0)
		s.over(r.name+": create alone", floorOf[r.isolation])
		s.times(r.name+": destroy", deref(times[r.name+": destroy"]), 0)
	}
	s.Note = "A bare runtime runs `true` and removes its container; cubby creates the sandbox with its disk, connects to its agent, runs `true` and answers over HTTP. " +
		"A daemon of the bench's own has no pool. A gVisor sandbox begins in a kernel that was started ahead (`sentry-pool`), and a container is one that was kept ready like the one before " +
		"(`container-pool`), which is not in the figures; in the last rows there is neither."
	return nil
}

// beside is a bench with another daemon of its own; with one of somebody else it is b.
func (b *bench) beside(ctx context.Context, name string, flags ...string) (other *bench, stop func(), err error) {
	if b.Remote != nil {
		return b, func() {}, nil
	}
	p, err := b.startDaemon(ctx, filepath.Join(b.Scratch, name), append(flags, "--preview-listen=off")...)
	if err != nil {
		return nil, nil, err
	}
	copied := *b
	copied.client = p.client()
	return &copied, func() {
		copied.client.Close()
		p.stop()
	}, nil
}

// rested returns when the daemon has a kernel or a container for the next sandbox, if it
// keeps them ready. To start one takes the processors of what is measured next.
func (b *bench) rested(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sentryWait)
	defer cancel()
	for {
		text, err := b.client.Metrics(ctx)
		if err != nil {
			return // that of somebody else does not tell
		}
		// What somebody else's daemon is to keep ready it may not be able to.
		if ready, wanted := telemetry.ReadSentries(text); ready >= wanted && (b.Remote != nil || missing(text) == 0) {
			return
		}
		select {
		case <-ctx.Done():
			b.once("nothing is kept ready for the next sandbox")
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// sentryWait is far more than the start of a kernel takes.
const sentryWait = 10 * time.Second

func (b *bench) createOnce(ctx context.Context, isolation, name string, measure func(string, func() error), times map[string]*sample) {
	var id string
	var remove func()
	began := time.Now()
	measure(name+": create", func() (err error) {
		id, remove, err = b.box(ctx, isolation)
		return err
	})
	if id == "" {
		return
	}
	if err := b.run1(ctx, id); err != nil {
		b.once("%s: first command: %v", name, err)
	} else {
		if times[name+": create, first command"] == nil {
			times[name+": create, first command"] = &sample{}
		}
		times[name+": create, first command"].add(time.Since(began))
	}
	measure(name+": destroy", func() error { return b.client.Destroy(ctx, id) })
	remove()
	b.rested(ctx)
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
