// Package driver is the contract between cubby and whatever runs its
// sandboxes. A driver knows one technology (an OCI runtime, Docker,
// Kubernetes) and nothing of cubby's store, API or policies; core decides,
// drivers carry out.
//
// # Life of a sandbox below this contract
//
// [Driver.Create] prepares everything that a run needs and returns a [Handle];
// nothing runs yet. [Driver.Start] runs it and returns when the guest agent
// (cubby-init, PID 1 inside) has connected and answers, so that a caller can
// dial at once. [Driver.Stop] ends the run and keeps what is needed to start
// again. [Driver.Destroy] removes every trace: processes, mounts, loop
// devices, cgroups, namespaces, directories. Every method that takes a handle
// may be called again after it failed or after the daemon was killed in the
// middle of it: it finishes the work.
//
// # Handles
//
// A handle is the driver's own versioned note (JSON). Core stores it verbatim
// and hands it back after a restart, however long the daemon was away and
// whatever version of cubby wrote it. Nothing that must outlive the daemon
// lives in its process.
//
// # Sleep
//
// Some drivers can keep the memory of a sandbox, see [Sleeper] and
// [Snapshotter]. Such memory is a cache, and the files are the truth: at every moment a
// sandbox with kept memory can be begun cold from its volumes, with the files
// of the moment at which it fell asleep, and nothing is lost that was not in
// memory alone. What is kept holds every secret that was in memory, and nobody
// but root reads it. The memory of a sleeper goes with the sandbox; a snapshot
// outlives it.
//
// What a driver may be able to do is an interface of its own, which [As] finds:
// there are no flags beside it.
//
// # The guest
//
// [Driver.DialGuest] gives a byte stream to the agent inside, on which the
// host is an HTTP/1.1 client. [Driver.AcceptEgress] gives the streams that the
// sandbox opens towards the outside. Drivers authenticate both; a stream that
// comes out of them belongs to that sandbox.
//
// Errors are classified with errs: Invalid (the spec cannot be carried out),
// Unsupported (this host cannot do it, with a hint that says what is missing;
// never a silent downgrade), NotFound (no such sandbox), Unavailable (try
// again), Internal.
package driver

import (
	"context"
	"net"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Driver runs sandboxes. Methods are safe for concurrent use with different
// handles; core serialises calls for one handle, except Wait, Inspect,
// DialGuest and AcceptEgress, which may run beside anything.
type Driver interface {
	// Name is what a store notes beside the handles of this driver, so that they
	// are never given to another: short, and the same for ever.
	Name() string

	// Capabilities says what this driver can do on this host, probed once.
	Capabilities() Capabilities

	// Create prepares a sandbox. On error nothing is left behind. A second
	// Create with the same spec.UID is errs.Conflict.
	Create(ctx context.Context, spec Spec) (Handle, error)

	// Start runs a created or stopped sandbox and returns when its agent
	// answers. On error nothing runs, and the sandbox can be started again
	// or destroyed. Starting a running sandbox does nothing. One that is asleep
	// begins cold, and its memory is given up.
	Start(ctx context.Context, h Handle) error

	// Stop asks the agent to end everything (SIGTERM, then SIGKILL after
	// grace) and ends the run. The root filesystem's changes are kept where
	// the driver can; the disk always is. Stopping a sandbox that does not
	// run does nothing, but that one that is asleep loses its memory.
	Stop(ctx context.Context, h Handle, grace time.Duration) error

	// Destroy ends the run without grace and removes every trace, whatever
	// state the sandbox is in. Destroying what is gone is not an error.
	Destroy(ctx context.Context, h Handle) error

	// Identify gives a running sandbox an identity in the place of the one that
	// its handle has, and returns the handle that has the new one: runs that
	// begin later have it too, as soon as they are asked for with that handle.
	// The old handle stays good for all else.
	//
	// The host name is the new id, as hostname, uname, /etc/hostname and
	// /etc/hosts show it, and every command, kernel and session that begins
	// later has the new environment, and kernels that run have it before their
	// next cell; what else runs keeps the one that it has. Only the host can do
	// this: the agent takes it from nobody else.
	//
	// The first identity of a sandbox that was restored also ends what it has
	// from the parent, before anything else reaches it: the parent's commands are
	// unknown, the agent's boot id is another, the channel has a secret of its own, and kernels have fresh random
	// numbers. That is so also when the id stays the same.
	//
	// A sandbox can be given another identity, as a fork must be. But the handle
	// says which one is replaced: Conflict when the sandbox has neither that one
	// nor the new one, so that of two who want to have a sandbox of nobody one
	// gets it. After an error, or a crash before the new handle was stored, the
	// same call with the old handle finishes the work. Invalid without an id;
	// Unsupported where the agent was started by a version that cannot, and then
	// nothing has changed; Unavailable when it does not run or does not answer.
	Identify(ctx context.Context, h Handle, is Identity) (Identified, error)

	// Inspect reports what is true now, from the system and not from memory.
	Inspect(ctx context.Context, h Handle) (Status, error)

	// Wait blocks until the sandbox is not running and says why. It returns
	// at once for one that does not run. It works for sandboxes that an
	// earlier daemon started. A death is reported within a second.
	Wait(ctx context.Context, h Handle) (Death, error)

	// Adopt makes a running sandbox of an earlier daemon reachable again: it
	// listens where the agent redials. Adopting an adopted sandbox does
	// nothing. NotFound or WrongState when it does not run.
	Adopt(ctx context.Context, h Handle) error

	// List tells of every sandbox of which this driver finds any trace on the
	// host, from the system, sorted by uid: also of half-made ones and ones of
	// which only rubbish is left. With each comes what Inspect would say, so
	// that one call serves for all of them. An error means "unknown", never
	// "none"; one sandbox that cannot be read is listed with an error of its
	// own and hides no other.
	List(ctx context.Context) ([]Found, error)

	// Sweep removes every trace of a sandbox that has no handle any more.
	Sweep(ctx context.Context, uid sandbox.UID) error

	// DialGuest opens a stream to the agent. Unavailable while the agent is
	// away (it redials by itself within a second).
	DialGuest(ctx context.Context, h Handle) (net.Conn, error)

	// AcceptEgress blocks for the next stream that the sandbox opens to the
	// outside, and says by which door. It returns an error when ctx ends or
	// the sandbox stops. At most one caller per sandbox.
	AcceptEgress(ctx context.Context, h Handle) (net.Conn, sandbox.Door, error)

	// Stats reads what the sandbox uses now.
	Stats(ctx context.Context, h Handle) (Stats, error)

	// Close releases what the driver holds in this process. Sandboxes go on.
	Close() error
}

// Serves reports errs.Unsupported when what was made by the driver of a name is
// not for d. "" is a sandbox of which nothing was made.
func Serves(d Driver, name string) error {
	if name == "" || name == d.Name() {
		return nil
	}
	return errs.E(errs.Unsupported, "the sandbox was made by the driver %q, and this daemon has %q", name, d.Name()).
		Hint("start cubby with that driver again; until then the sandbox is left as it is")
}

// Handle is a driver's note of one sandbox, opaque to everybody else.
type Handle []byte

// Capabilities are facts about a driver on this host.
type Capabilities struct {
	Isolations []IsolationSupport
}

// IsolationSupport says whether an isolation works here.
type IsolationSupport struct {
	Isolation sandbox.Isolation
	Err       error  // nil when it works; else errs.Unsupported with a hint
	Detail    string // "runsc release-…, systrap", for doctor and people
}

// Phase is what a driver sees of a sandbox.
type Phase string

const (
	PhaseCreated Phase = "created" // prepared, never ran or was stopped
	PhaseRunning Phase = "running"
	PhaseAsleep  Phase = "asleep" // its memory is kept, and nothing of it runs; see Sleeper
	PhaseDead    Phase = "dead"   // ended by itself, not yet destroyed
	PhaseGone    Phase = "gone"   // no trace
)

// Status is the truth about a sandbox at one moment.
type Status struct {
	Phase Phase
	Death Death // when PhaseDead
	// MemoryOnDisk is what the kept memory takes of the host's disk, in bytes;
	// when PhaseAsleep.
	MemoryOnDisk int64
}

// Found is a sandbox of which a driver finds a trace.
type Found struct {
	UID    sandbox.UID
	Status Status
	Err    error // why its status is unknown; nil when it is known
}

// DeathCause is why a sandbox stopped running.
type DeathCause string

const (
	DeathNone    DeathCause = ""    // it was stopped or destroyed on request
	DeathOOM     DeathCause = "oom" // killed by the host for its memory limit
	DeathSignal  DeathCause = "signal"
	DeathExit    DeathCause = "exit"    // PID 1 exited
	DeathRemoved DeathCause = "removed" // somebody removed it behind cubby's back
	DeathUnknown DeathCause = "unknown"
)

// Death says how a run ended.
type Death struct {
	Cause  DeathCause
	Signal string // for DeathSignal: "SIGKILL"
	Code   int    // for DeathExit
	Detail string // for the log
}

// Stats are a sandbox's use of the host.
type Stats struct {
	MemoryBytes int64 // charged to its cgroup now
	CPUTime     time.Duration
	PIDs        int64 // processes of the host; -1 where they mean nothing (gVisor)
}
