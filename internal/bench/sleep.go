package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/errs"
)

const (
	// The goals are multiples of what the runtime alone takes.
	sleepGoal    = 1.3 // checkpoint, and an fsync of what it wrote
	wakeGoal     = 1.3 // restore
	sleeperGoal  = 100 // KiB of the daemon for each sandbox that sleeps
	sleepTimeout = time.Minute
)

// A heap is a Python process in a sandbox, by the memory that it holds.
type heap struct {
	name  string
	bytes int
}

func heaps() []heap { return []heap{{"Python of 10 MB", 0}, {"200 MB heap", 200 << 20}} }

// script fills the heap, creates a file when that is done, and waits.
func (h heap) script(ready string) string {
	return fmt.Sprintf("import os, time; x = os.urandom(%d); open(%q, 'w').close(); time.sleep(100000)", h.bytes, ready)
}

// sleep measures how long it takes to put a sandbox to sleep, and to run a command
// in one that sleeps, beside gVisor's own checkpoint and restore of the same
// process; and what the daemon holds of sandboxes that sleep.
func (b *bench) sleep(ctx context.Context) error {
	s := b.report.section("sleep", "Sleep and wake")
	s.Note = "The floor is `runsc checkpoint` with an fsync of each file that it wrote, and `runsc restore`, of the same Python process. " +
		"A wake is the answer of a command in a sandbox that sleeps."
	if err := b.keepsMemory(); err != nil {
		return err
	}
	list := b.runtimes()
	defer closeRuntimes(list)
	for _, h := range heaps() {
		if err := b.sleepOf(ctx, s, list, h); err != nil {
			return err
		}
	}
	return b.sleepers(ctx, s)
}

func (b *bench) keepsMemory() error {
	if !slices.Contains(b.Isolations, "gvisor") {
		return errs.E(errs.Unsupported, "only gVisor keeps memory")
	}
	return nil
}

// sleepOf lets the floor and cubby take turns.
func (b *bench) sleepOf(ctx context.Context, s *Section, list []bare, h heap) error {
	var checkpoint, restore, sleep, wake sample
	p, err := b.newPair(ctx, list, h)
	if err != nil {
		return err
	}
	defer p.remove()
	for i := range b.count(20, 5) + 1 {
		if down, up, ok := p.ofFloor(func(c *checkpointed) (_, _ time.Duration, _ error) { return c.cycle(ctx) }); ok && i > 0 { // the first round fills caches
			checkpoint.add(down)
			restore.add(up)
		}
		b.rested(ctx)
		down, err := timed(func() error { return b.putToSleep(ctx, p.id) })
		if err != nil {
			return err
		}
		b.rested(ctx)
		up, err := timed(func() error { return b.run1(ctx, p.id) })
		if err != nil {
			return err
		}
		if i > 0 {
			sleep.add(down)
			wake.add(up)
		}
	}
	s.times("runsc checkpoint and fsync, "+h.name, checkpoint, 0)
	s.times("sleep, "+h.name, sleep, 0)
	s.within("sleep, "+h.name, "runsc checkpoint and fsync, "+h.name, sleepGoal)
	s.times("runsc restore, "+h.name, restore, 0)
	s.times("wake and a command, "+h.name, wake, 0)
	s.within("wake and a command, "+h.name, "runsc restore, "+h.name, wakeGoal)
	return nil
}

// pair is the process of a heap twice: under gVisor alone, and in a sandbox.
type pair struct {
	*bench
	floor     *checkpointed // nil: it failed, which is noted
	id        string        // of the sandbox
	removeBox func()
}

func (b *bench) newPair(ctx context.Context, list []bare, h heap) (p *pair, err error) {
	p = &pair{bench: b, removeBox: func() {}}
	if p.floor, err = b.newCheckpointed(ctx, list, h); err != nil {
		p.floorFailed(err)
	}
	id, remove, err := b.box(ctx, "gvisor")
	if err == nil {
		p.id, p.removeBox = id, remove
		err = b.fillHeap(ctx, id, h)
	}
	if err != nil {
		p.remove()
	}
	return p, err
}

func (p *pair) remove() {
	p.removeBox()
	if p.floor != nil {
		p.floor.remove()
	}
}

// ofFloor measures the floor; not ok when there is none, or none any more.
func (p *pair) ofFloor(measure func(*checkpointed) (a, b time.Duration, err error)) (first, second time.Duration, ok bool) {
	if p.floor == nil {
		return 0, 0, false
	}
	first, second, err := measure(p.floor)
	if err != nil {
		p.floorFailed(err)
	}
	return first, second, err == nil
}

func (p *pair) floorFailed(err error) {
	p.note("the floor of sleeps and forks: %v", err)
	if p.floor != nil {
		p.floor.remove()
		p.floor = nil
	}
}

// fillHeap starts the process of a heap in a sandbox.
func (b *bench) fillHeap(ctx context.Context, id string, h heap) error {
	e, err := b.client.Exec(ctx, id, client.Shell(fmt.Sprintf(
		"setsid python3 -c %q </dev/null >/dev/null 2>&1 & until [ -e /tmp/ready ]; do sleep 0.05; done", h.script("/tmp/ready"))))
	if err != nil {
		return err
	}
	return e.Err()
}

// putToSleep wants the sandbox to sleep, not to be stopped.
func (b *bench) putToSleep(ctx context.Context, id string) error {
	box, err := b.client.Sleep(ctx, id, false)
	if err == nil && box.Status != client.Sleeping {
		err = errs.E(errs.WrongState, "the sandbox is %s: %s", box.Status, box.Reason)
	}
	return err
}

// sleepers measures what the daemon and the machine hold of sandboxes that sleep.
func (b *bench) sleepers(ctx context.Context, s *Section) error {
	if b.daemon == nil {
		return nil
	}
	n := b.count(200, 20)
	before, resident := pids(), int64(0)
	var removes []func()
	defer func() {
		for _, remove := range removes {
			remove()
		}
	}()
	for i := range n + 1 {
		id, remove, err := b.box(ctx, "gvisor")
		if err != nil {
			return err
		}
		removes = append(removes, remove)
		if err := b.putToSleep(ctx, id); err != nil {
			return err
		}
		if i == 0 {
			resident = statusNumber(b.daemon.pid(), "VmRSS")
		}
	}
	grown := statusNumber(b.daemon.pid(), "VmRSS") - resident
	s.value("daemon, resident, for each that sleeps", "KiB", float64(grown)/float64(n), n, sleeperGoal, false)
	_, count, err := b.newProcesses(before)
	if err != nil {
		count = 0 // that there is none is the figure here
	}
	s.value("processes of the host, of all that sleep", "", float64(count), n, 0, false)
	return nil
}

// checkpointed is a process under gVisor alone, which is checkpointed and restored
// in turns.
type checkpointed struct {
	runtime bare
	bundle  string
	dir     string
	id      string
}

// newCheckpointed starts the process of a heap.
func (b *bench) newCheckpointed(ctx context.Context, list []bare, h heap) (*checkpointed, error) {
	if len(list) == 0 || list[0].name != "runsc" {
		return nil, errs.E(errs.Unsupported, "no bare runsc")
	}
	bundle, err := b.bundle(fmt.Sprintf("heap-%d", h.bytes), "/usr/bin/python3", "-c", h.script("/tmp/ready"))
	if err != nil {
		return nil, err
	}
	dir, err := b.ensureDir("floor", "checkpoint")
	if err != nil {
		return nil, err
	}
	c := &checkpointed{runtime: list[0], bundle: bundle, dir: dir, id: fmt.Sprintf("floor-heap-%010d", h.bytes)}
	if err := c.detached(ctx, "run"); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, sleepTimeout)
	defer cancel()
	for c.runtime.call(ctx, "exec", c.id, "/usr/bin/test", "-e", "/tmp/ready") != nil {
		if ctx.Err() != nil {
			c.remove()
			return nil, ctx.Err()
		}
		time.Sleep(50 * time.Millisecond)
	}
	return c, nil
}

// cycle checkpoints the process, which ends it, and restores it.
func (c *checkpointed) cycle(ctx context.Context) (checkpoint, restore time.Duration, err error) {
	image, err := c.emptyImage()
	if err != nil {
		return 0, 0, err
	}
	if checkpoint, err = timed(func() error {
		if err := c.runtime.call(ctx, "checkpoint", "--image-path="+image, c.id); err != nil {
			return err
		}
		return syncFiles(image)
	}); err != nil {
		return 0, 0, err
	}
	if err := c.runtime.call(ctx, "delete", "--force", c.id); err != nil {
		return 0, 0, err
	}
	restore, err = timed(func() error { return c.detached(ctx, "restore", "--image-path="+image) })
	return checkpoint, restore, err
}

// emptyImage makes the directory that a checkpoint is written to.
func (c *checkpointed) emptyImage() (string, error) {
	image := filepath.Join(c.dir, "image")
	return image, errors.Join(os.RemoveAll(image), os.Mkdir(image, 0o700))
}

// detached begins a run that outlives the command. It must not inherit a pipe,
// whose end this process would wait for.
func (c *checkpointed) detached(ctx context.Context, command string, flags ...string) error {
	if err := os.MkdirAll(c.runtime.root(), 0o700); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sleepTimeout)
	defer cancel()
	args := append(append([]string{}, c.runtime.args...), command, "--detach", "--bundle="+c.bundle)
	if err := exec.CommandContext(ctx, c.runtime.path, append(append(args, flags...), c.id)...).Run(); err != nil {
		return fmt.Errorf("runsc %s: %w", command, err)
	}
	return nil
}

func (c *checkpointed) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_ = c.runtime.call(ctx, "delete", "--force", c.id)
	_ = os.RemoveAll(c.dir)
}

// syncFiles brings the files of a directory to the disk.
func syncFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		err = f.Sync()
		_ = f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
