package driver

import (
	"context"
	"errors"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
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

// ErrOutdated is the cause of an Unsupported that is over when the sandbox was stopped
// and started: it runs with a runtime or an agent of an older version.
var ErrOutdated = errors.New("the sandbox runs with programs of an older version")

// Sleeper is a Driver that can put a running sandbox to sleep: nothing of it
// runs, and all that ran goes on after the wake. It is one also when only some
// of its isolations can.
type Sleeper interface {
	// CanSleep is Unsupported, with what is missing, where Sleep of this sandbox is
	// known to be; it changes nothing. The cause is [ErrOutdated] where only this run
	// cannot. After nil a Sleep may still be Unsupported.
	CanSleep(ctx context.Context, h Handle) error

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

// Snapshotter is a Driver that can keep the memory and the files of a running
// sandbox of one instant, and begin sandboxes from that, any number of times. It
// is one also when only some of its isolations can.
type Snapshotter interface {
	// Snapshot keeps the memory of a running sandbox under a name of its own; the
	// sandbox goes on. The sandbox stands still for a while, in which nothing in it
	// runs and its files are on its volumes, synced. In that while Snapshot calls
	// copyFiles, once, which copies the volumes: they are the files of the instant.
	//
	// To the host it looks like a short loss of the agent: streams to it break and
	// those of AcceptEgress end, and the agent dials again.
	//
	// When it returns nil, the memory is whole, on the disk, and was read back; it
	// outlives the sandbox. After an error nothing is kept, and the sandbox runs
	// on, with all that ran and with an agent that answers. After a crash the
	// sandbox runs once it is adopted, and half a snapshot is in Snapshots and
	// never one to restore.
	//
	// Unsupported, WrongState and Exhausted are as for Sleep; Conflict for a name
	// that is taken.
	Snapshot(ctx context.Context, h Handle, name sandbox.UID, copyFiles func(ctx context.Context) error) (Snapshot, error)

	// Restore makes a running sandbox of spec out of a kept snapshot, and returns
	// when its agent answers. The snapshot stays, and several may be restored at
	// once. The volumes of spec hold copies of the files of that instant, of which
	// no other restore has had the use; Restore does not empty the one of the root.
	//
	// The sandbox has its own channel, cgroup and address of the way out. Its
	// isolation, limits, image and roles of volumes are those of the snapshot:
	// Invalid when spec says otherwise. It has the identity of the parent, in its
	// memory and in its handle, until [Driver.Identify] gives it its own; that of
	// spec is not read. Random generators in memory have the parent's state.
	//
	// A sandbox goes back to a snapshot of itself under its own uid, once it was
	// destroyed and its volumes hold the files of the instant again.
	//
	// After an error nothing of the sandbox is left. After a crash what there is
	// of it is in List, for Sweep. NotFound: there is no such snapshot, it is
	// damaged, or nothing on this host can read it. Conflict for a uid that is
	// taken.
	Restore(ctx context.Context, name sandbox.UID, spec Spec) (Handle, error)

	// RemoveSnapshot removes a snapshot, or half a one. Sandboxes that began from
	// it go on. Removing what is gone is not an error.
	RemoveSnapshot(ctx context.Context, name sandbox.UID) error

	// Snapshots names every snapshot of which this driver finds any trace on the
	// host, also half ones, sorted. An error means "unknown", never "none".
	Snapshots(ctx context.Context) ([]sandbox.UID, error)
}

// Snapshot is what came of keeping one.
type Snapshot struct {
	Paused time.Duration // how long nothing in the sandbox ran
	Bytes  int64         // what is kept takes of the host's disk
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
	// Locks is how many file locks the sandbox held at least, when the driver killed
	// the process for them; 0: the kernel killed it.
	Locks int
}

// TreeKiller is a Driver whose sandboxes share the host's kernel: there the host
// can end processes that the agent is too starved to end.
type TreeKiller interface {
	// KillOthers ends every process of a running sandbox but its agent and what
	// descends from those in spare, process ids inside, which are the agent's
	// children. It returns when they are gone, or soon after ctx ended, for spare
	// holds good for so long; nothing can be forked in the sandbox for some of
	// that time. Unsupported where the sandbox has a kernel of its own.
	KillOthers(ctx context.Context, h Handle, spare []int64) error
}

// Stocker is a Driver that keeps parts of sandboxes ready, so that the next one begins
// sooner.
type Stocker interface {
	// GiveUp removes what is ready and belongs to no sandbox, because the host's memory is
	// short, and makes no more of it for a while. It reports how many parts that were.
	GiveUp() int
	// Stock is how many parts are ready, and how many shall be.
	Stock() (ready, wanted int)
}
