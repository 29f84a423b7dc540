package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/agent"
	"github.com/cubbyhq/cubby/internal/driver/oci/memory"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// sleepLimit bounds a sleep whose caller set no deadline of its own.
const sleepLimit = 5 * time.Minute

// Sleep implements driver.Sleeper. A container shares the host's kernel, which
// has no memory of it to keep. gVisor's memory is written while the sandbox is
// paused and stays so: until the memory has its name it can go on, and from then
// on nothing of it runs any more.
func (d *Driver) Sleep(ctx context.Context, h driver.Handle) error {
	n, err := parseHandle(h)
	if err != nil {
		return err
	}
	if n.Isolation != sandbox.GVisor {
		return errs.E(errs.Unsupported, "the memory of a container cannot be kept").Hint("stop it, or use isolation gvisor")
	}
	ctx, cancel := context.WithTimeout(ctx, sleepLimit)
	defer cancel()
	b := d.box(n.UID)
	status, err := d.Inspect(ctx, h)
	if err != nil {
		return err
	}
	if status.Phase == driver.PhaseAsleep {
		return d.clear(ctx, n.UID) // an earlier call may have been cut off
	}
	r, rec, err := d.toKeep(ctx, h, b, status.Phase)
	if err != nil {
		return err
	}
	err = d.beforeCheckpoint(ctx, r)
	if err == nil {
		err = d.checkpoint(ctx, n, r, b.memory(), b.saved())
	}
	if err == nil {
		err = exhausted(b.memory().Seal(memory.Content{Secret: rec.Secret}))
	}
	if err != nil {
		if _, kept, keptErr := b.memory().Kept(); !kept && keptErr == nil {
			return errors.Join(err, d.afterCheckpoint(ctx, n, r, rec))
		}
		// It has its name and may not have it after a crash of the host.
		d.log.Error("the memory of a sandbox is not known to be on the disk", "box", n.UID, "err", err)
	}
	return d.clear(context.WithoutCancel(ctx), n.UID)
}

// toKeep takes hold of a run whose memory is going to be kept, and marks it.
func (d *Driver) toKeep(ctx context.Context, h driver.Handle, b box, phase driver.Phase) (*run, record, error) {
	switch phase {
	case driver.PhaseRunning:
	case driver.PhaseGone:
		return nil, record{}, errs.E(errs.NotFound, "no such sandbox")
	case driver.PhaseCreated, driver.PhaseDead, driver.PhaseAsleep:
		return nil, record{}, errs.E(errs.WrongState, "sandbox is not running")
	}
	if err := d.Adopt(ctx, h); err != nil {
		return nil, record{}, err
	}
	r, err := d.held(h)
	if err != nil {
		return nil, record{}, err
	}
	if err := b.roomToSleep(r.process); err != nil {
		return nil, record{}, err
	}
	rec, _, err := b.record()
	if err != nil {
		return nil, record{}, err
	}
	rec.Sleeping, rec.Paused = true, true
	return r, rec, b.setRecord(rec)
}

// beforeCheckpoint readies the agent for the memory that it will be in: its time
// limits stand still, and nothing is under way with it.
func (d *Driver) beforeCheckpoint(ctx context.Context, r *run) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	err := agent.PauseTimers(ctx, agent.New(r.line().Dial))
	r.line().Sever()
	return err
}

// roomToSleep refuses what would take the host's last space: the memory, and a
// save of the root filesystem beside it.
func (b box) roomToSleep(p *process) error {
	all, files, err := memory.Needs(p.pid)
	if err != nil {
		return err
	}
	host, err := space(b.dir)
	if err != nil {
		return err
	}
	if need := all + files; host.free-need < max(host.size/hostReserve, minReserve) {
		return errs.E(errs.Exhausted, "the host has no room for a memory of %d bytes", need)
	}
	return nil
}

// checkpoint writes half a memory of a run, and its root filesystem to a directory,
// and leaves it paused. The files are on the disk before the memory is whole: it
// believes that they are.
func (d *Driver) checkpoint(ctx context.Context, n note, r *run, to memory.Memory, root string) error {
	if err := to.Begin(r.process.program()); err != nil {
		return exhausted(err)
	}
	if err := d.runsc(ctx, n, r.process, "pause"); err != nil {
		return err
	}
	// For a cold start, which has no memory: the root filesystem is in it.
	if err := d.save(ctx, n, r.process.program(), root); err != nil {
		return exhausted(err)
	}
	if err := d.runsc(ctx, n, r.process, "checkpoint", "--leave-running", "--image-path="+to.HalfImage()); err != nil {
		return exhausted(err)
	}
	for _, dir := range n.dirs() {
		if err := syncFilesystem(dir); err != nil {
			return fmt.Errorf("sync the sandbox's disk: %w", err)
		}
	}
	return nil
}

// exhausted classifies a full disk, of which gVisor tells in words.
func exhausted(err error) error {
	if err != nil && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || strings.Contains(err.Error(), syscall.ENOSPC.Error())) {
		return errs.E(errs.Exhausted, "the host's disk is full").Because(err)
	}
	return err
}

func syncFilesystem(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd())))
}

// afterCheckpoint ends the pause of a checkpoint that did not end the run: it goes
// on, and its agent answers.
func (d *Driver) afterCheckpoint(ctx context.Context, n note, r *run, rec record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startLimit)
	defer cancel()
	if r.ended() {
		return nil
	}
	if err := d.goOn(ctx, n, r.process, rec); err != nil {
		return err
	}
	l, err := d.listenAgain(d.box(n.UID), rec)
	if err != nil {
		return err
	}
	r.setLine(l)
	rec.Sleeping = false
	return d.resumeTimers(ctx, d.box(n.UID), r, rec)
}

// resumeTimers lets the time limits of an agent go on, and notes that they do.
func (d *Driver) resumeTimers(ctx context.Context, b box, r *run, rec record) error {
	if err := d.rouse(ctx, r); err != nil {
		return err
	}
	rec.Paused = false
	if err := b.setRecord(rec); err != nil {
		// What is written there only has this done once more.
		d.log.Warn("time limits that go on are still in the notes", "box", b.uid, "err", err)
	}
	return nil
}

// goOn ends the pause of a run whose memory was not kept. What the runtime cannot
// write down of that, on a full disk, it does all the same: whether the run goes
// on is told by its agent.
func (d *Driver) goOn(ctx context.Context, n note, p *process, rec record) error {
	b := d.box(n.UID)
	// A command of a daemon that was killed may still be under way.
	lock, err := b.lockRuntime()
	if err != nil {
		return err
	}
	_ = lock.Close()
	// First of all, since it may be what fills the disk.
	if err := b.memory().Tidy(); err != nil {
		return err
	}
	paused, err := d.paused(ctx, n, p)
	if err == nil && paused {
		err = d.runsc(ctx, n, p, "resume")
	}
	if err != nil {
		d.log.Error("a sleep that was given up has not ended well", "box", n.UID, "err", err)
	}
	rec.Sleeping = false
	if err := b.setRecord(rec); err != nil {
		// What is written there only has this done once more.
		d.log.Warn("a sleep that was given up is still in the notes", "box", n.UID, "err", err)
	}
	return nil
}

// paused reports whether the runtime says of a run that it is paused.
func (d *Driver) paused(ctx context.Context, n note, p *process) (bool, error) {
	args := append(bundle{note: n, box: d.box(n.UID)}.runscFlags(), "state", string(n.UID))
	cmd := exec.CommandContext(ctx, p.program(), args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return false, fmt.Errorf("state of the sandbox: %w", err)
	}
	var state struct{ Status string }
	err = json.Unmarshal(out, &state)
	return state.Status == "paused", err
}

// runsc gives a command to a run, by the program that runs it.
func (d *Driver) runsc(ctx context.Context, n note, p *process, command string, flags ...string) error {
	if command != "checkpoint" {
		// One that is killed in the middle would leave the sandbox in a state
		// that the runtime does not know of.
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, sleepLimit)
	defer cancel()
	b := d.box(n.UID)
	lock, err := b.lockRuntime()
	if err != nil {
		return err
	}
	defer lock.Close()
	args := append(bundle{note: n, box: b}.runscFlags(), command)
	cmd := exec.CommandContext(ctx, p.program(), append(append(args, flags...), string(n.UID))...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.ExtraFiles = []*os.File{lock}
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// lockRuntime takes the lock that commands to a run hold. They inherit it, so
// that it is held until the last of them has ended, also without this process.
func (b box) lockRuntime() (*os.File, error) {
	f, err := os.OpenFile(b.path("sleep.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, os.NewSyscallError("flock", err)
	}
	return f, nil
}
