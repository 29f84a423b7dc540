package storage

import (
	"context"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Fault is a mounted disk that the kernel writes nothing to any more, because a
// write of its file system failed: the host's disk was full, or returned an error.
// Reading goes on. A disk is sound again once it has been unmounted by all its users
// and mounted again, which repairs its file system.
type Fault struct {
	Disk   sandbox.UID
	Shared bool          // it is one that several sandboxes may use
	Users  []sandbox.UID // sandboxes that have it attached
	State  string        // what the kernel calls it: "emergency_ro", "shutdown", "ro"
	Since  time.Time     // when it was found
}

// Err is what a write to the disk is answered with.
func (f Fault) Err() error {
	return errs.E(errs.Unavailable, "%s", f.Reason()).
		Hint("the sandbox is restarted by itself once the host has room; to do it at once, free space on the host and stop and start the sandbox").
		RetryAfter(30 * time.Second)
}

// Reason says what is wrong, for people.
func (f Fault) Reason() string {
	whose := "the sandbox's disk"
	if f.Shared {
		whose = "the disk that the tenant's sandboxes share"
	}
	return whose + " is read-only because writing to the host's disk failed"
}

// OnFault is told when a fault is found, and when it is over because the disk was
// unmounted or removed.
type OnFault func(f Fault, over bool)

// Health is which disks can be written to.
type Health interface {
	// Writable is nil while writes to the disks of a sandbox go through. It is
	// errs.Exhausted, with a time to try again, while all writers are held because
	// the host is nearly full, and errs.Unavailable after a [Fault].
	Writable(user sandbox.UID) error
	// Examine is Writable after a look at the disks. Without one, a fault is found
	// within seconds.
	Examine(user sandbox.UID) error
	// Sync writes what the disks of a sandbox have and waits for that. It is
	// errs.Unavailable when something was lost that no Sync has told of.
	Sync(ctx context.Context, user sandbox.UID) error
	// Faults are those that are known and not over.
	Faults() []Fault
	// Sever lets the processes of a sandbox end whose own disk is about to be
	// removed, although its writers are held: until done, writes to its own disk
	// fail, and held writers of its other disks get to finish what they are at.
	// Processes that were not killed before can write to those.
	Sever(user, own sandbox.UID) (done func())
}
