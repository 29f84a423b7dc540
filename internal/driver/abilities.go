package driver

import (
	"context"
	"time"
)

// As finds an ability of a driver, one of the interfaces below. The driver may
// be decorated: a decorator has an Unwrap method that returns what it decorates.
// What the innermost driver cannot do none of its decorators can, whatever
// methods they have; what it can do is asked of the outermost that has a say.
func As[Ability any](d Driver) (Ability, bool) {
	var none Ability
	outermost, found := none, false
	for {
		ability, ok := d.(Ability)
		if ok && !found {
			outermost, found = ability, true
		}
		decorator, decorates := d.(interface{ Unwrap() Driver })
		if !decorates {
			if !ok {
				return none, false
			}
			return outermost, true
		}
		d = decorator.Unwrap()
	}
}

// Sleeper is a Driver that can put a running sandbox to sleep: nothing of it
// runs, and all that ran goes on after the wake. It is one also when only some
// of its isolations can.
type Sleeper interface {
	// Sleep keeps the memory of a running sandbox on the host's disk and ends
	// its run. When it returns nil, the memory is whole, on the disk, and was
	// read back; every process has gone; the phase is [PhaseAsleep]. Putting a
	// sleeping sandbox to sleep does nothing.
	//
	// To the host it looks like a stop: streams to the agent break and those of
	// AcceptEgress end, DialGuest is Unavailable, and Wait returns no death. The
	// agent has no open connection in the kept memory, so that it dials again.
	//
	// After an error or a crash, at whatever step, the sandbox either runs on,
	// with all that ran and with an agent that answers (after a crash: once it
	// is adopted), or it is asleep, as if Sleep had returned nil. Inspect says
	// which. A memory that is half written is never one to wake from.
	//
	// Unsupported when this isolation cannot, WrongState when it does not run,
	// Exhausted when the host's disk has no room: then nothing has happened.
	Sleep(ctx context.Context, h Handle) error

	// Wake runs a sleeping sandbox on and returns when its agent answers. The
	// agent and every process are those of before; clocks on the wall are
	// right. The memory is removed when the agent answers and not before, and
	// is never used again: the files change from then on, and the memory of
	// before on top of them would damage what the guest believes of its disk.
	// Waking a running sandbox does nothing.
	//
	// The limits, volumes and programs are those of the handle; a runtime that
	// was replaced since then is kept for as long as a memory needs it.
	//
	// After an error the sandbox is asleep and can be woken again, or begun cold
	// by Start. After a crash it is asleep or runs, and Inspect says which.
	// NotFound means that waking it again is in vain: there is no memory, it is
	// damaged, or nothing on this host can read it; Start is what is left.
	// WrongState when it neither sleeps nor runs.
	Wake(ctx context.Context, h Handle) error
}

// Forker is a Driver that can make sandboxes that begin as copies of a running
// one, its memory and its files of one instant.
type Forker interface {
	// Fork makes a sandbox of each spec out of a running parent, which goes on.
	// They run when it returns, and their handles come in the order of the specs.
	//
	// The parent stands still for a while, in which nothing in it runs and its
	// files are on its volumes, synced. In that while Fork calls copyFiles, once:
	// it puts the volumes of the specs in place, as copies of the parent's. Their
	// directories need not be there before.
	//
	// Each has its own channel, cgroup and address of the way out, and the
	// isolation, limits and image of its parent: Invalid when its spec says
	// otherwise. It has the parent's identity, in its memory and in its handle,
	// until [Driver.Identify] gives it its own; the identity of its spec is not
	// read. Random generators in memory have the parent's state: who wants
	// others has to seed them.
	//
	// All or nothing: after an error none of them is left, and the parent runs
	// on, with all that ran. After a crash the parent runs or is asleep, and what
	// there is of the others is in List, for Sweep.
	//
	// Unsupported, WrongState and Exhausted are as for Sleep; Conflict for a uid
	// that is taken.
	Fork(ctx context.Context, parent Handle, specs []Spec, copyFiles func(ctx context.Context) error) (Forked, error)
}

// Forked is what came of a fork.
type Forked struct {
	Handles []Handle
	// Paused is how long nothing in the parent ran.
	Paused time.Duration
}

// OOMReader is a Driver that can tell which processes were killed for want of
// memory: by the host's kernel, or by the driver for the file locks of their
// sandbox, which are memory of that kernel. Where sandboxes have a kernel of their own the agent
// knows it, and nothing is told here.
type OOMReader interface {
	// OOMKills returns the kills in the sandbox since a time, the oldest
	// first; it may miss some, and names none that was not killed.
	OOMKills(ctx context.Context, h Handle, since time.Time) ([]OOMKill, error)
}

// OOMKill is a process that was killed for want of memory.
type OOMKill struct {
	At      time.Time
	Process string // its name, as the process chose it; at most 15 bytes
	PID     int    // of the host
	Bytes   int64  // the memory that it had for itself
	// Files is the memory of the sandbox that belongs to no process: files in
	// /dev/shm and the like, in bytes, when this was asked.
	Files int64
	// Locks is how many file locks the sandbox held, when the driver killed the
	// process for them; 0: the kernel killed it.
	Locks int
}

// TreeKiller is a Driver whose sandboxes share the host's kernel: there the host
// can end processes that the agent is too starved to end.
type TreeKiller interface {
	// KillOthers ends every process of a running sandbox but its agent and what
	// descends from those in spare, process ids inside, which are the agent's
	// children. It returns when they are gone; nothing can be forked in the
	// sandbox for some of that time. Unsupported where the sandbox has a kernel
	// of its own.
	KillOthers(ctx context.Context, h Handle, spare []int64) error
}
