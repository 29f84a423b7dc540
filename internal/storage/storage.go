// Package storage is the contract between core and what keeps the files of
// sandboxes: disks that are attached while a sandbox runs, read while none
// does, and measured. internal/storage/local is the implementation that keeps
// them on the host.
//
// It does not decide who may have a disk or when one goes away, and it knows no
// states of sandboxes, no rows and no tenants: it is told names.
//
// # The life of a disk
//
// A disk is made empty by Create, with the directories of its layout, and has
// its size for good. It is mounted while somebody uses it: a sandbox that runs,
// from Attach to Detach, or a reader of its files, from Files to the end of
// that use. Uses are counted by user, so that one sandbox may attach twice and
// detaches once, and a disk that several share goes down with the last of them.
// After files were used a disk stays up for a while, because a client seldom
// reads one file: Rest takes down what nobody came back to.
//
// Remove deletes a disk, whoever still uses it. Nothing else takes a file away
// from it: a disk survives the end of its sandbox, of the daemon and of the
// host.
//
// # Copies
//
// Clone makes a new disk with the content that another has, or had when it was
// snapshotted; from then on they know nothing of each other. A snapshot belongs
// to its disk and goes with it. It cannot be attached or changed, only be
// restored, cloned and removed. Prepare and Restore give a disk that exists the
// content of another disk or of a snapshot: what can fail and what takes long comes
// first, while the disk may be in use, and then it changes in one step. Every copy has the content of one instant, with
// owners, modes, times, links, holes and extended attributes: where the
// implementation can hold the writers of a disk it does so for the time of the
// copy and says how long they waited; where it cannot, a disk in use is refused
// as errs.Conflict. Restore refuses a disk in use everywhere: what runs on it
// would go on with what it remembers of files that are not there any more.
//
// # After a crash
//
// A disk or a snapshot has its name only when it is whole: a Create, Clone or
// Snapshot that was cut off leaves nothing behind once the next daemon has
// opened the storage, and a Restore leaves the content from before it or that of
// its source. Remove that was cut off leaves a name that List has and that
// Remove takes away, and no disk that could be used. What a guest wrote and
// synced is there; what it only wrote may be lost when the host dies, and only
// then. List names everything of which any trace is left, and fails rather than
// leave one out: what it does not name is gone.
//
// Uses are known to the process that began them. One that takes over sandboxes
// that run attaches for each of them again, then has Release take down what an
// earlier process left mounted.
//
// # A full host
//
// The sizes of disks are promises that together may exceed what the host has, by
// as much as the operator allows. While less is free than he wants to keep,
// Admit is errs.Exhausted, and so are Create, Clone, Snapshot and Prepare; a copy
// for which there was room when it began ends in the same way, and leaves
// nothing, once half of that is gone. An implementation whose disks would lose
// data on a full host holds all their writers there: they wait, lose nothing,
// and go on by themselves when there is room again. Reading and removing always
// go on. [Pressure] hears of both.
//
// A host that fills up faster than that, or whose disk fails, makes the file system
// of a disk stop writing: [Health] tells which, and [OnFault] hears of it.
//
// # Faults
//
// They are returned, and none is kept: a disk that could not be unmounted is one
// that nobody uses, which the next Rest tries again and speaks of.
package storage

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// MinBytes is the smallest disk: less leaves no room beside a file system's own
// tables.
const MinBytes = 16 << 20

// Pressure is told when the writers of all disks are held because the host is
// nearly full, and when they go on, with the bytes that are free.
type Pressure func(held bool, free int64)

// Layout is which directories a disk begins with.
type Layout int

const (
	// Own is of a disk that one sandbox has for itself: the workspace and the
	// home of the default user, where ~/workspace leads to /workspace, and what
	// its runtime keeps of the rest.
	Own Layout = iota
	// Shared is of a disk that sandboxes have in common beside their own:
	// workspace, outputs and uploads.
	Shared
)

// Disk is one that is mounted.
type Disk struct {
	UID   sandbox.UID
	Dir   string // where it is mounted: holds the directories of its layout
	Bytes int64
	Quota bool // false: a plain directory without a hard size
}

// Use is who uses which disks.
type Use struct {
	User   sandbox.UID // a sandbox
	Own    sandbox.UID // the disk that it has for itself
	Shared sandbox.UID // one that others may use too; "" for none
}

// Mounts are the disks of a use.
type Mounts struct {
	Own    Disk
	Shared Disk // the zero value where none is shared
}

// Usage is what a disk takes.
type Usage struct {
	Bytes     int64 // its size
	Used      int64 // as df inside shows it; 0 while it is not mounted
	Allocated int64 // on the host
	Snapshots int64 // that its snapshots take on the host; blocks that they share with it count for each
}

// Source is what a clone or a restore takes its content from.
type Source struct {
	UID      sandbox.UID
	Snapshot string // of it; "" is what it holds now
	// Still: the caller sees to it that nobody writes to the disk meanwhile, so
	// one that is in use is copied also where its writers could not be held.
	Still bool
}

// Snapshot is the content that a disk had.
type Snapshot struct {
	Name      string
	CreatedAt time.Time
	Bytes     int64 // the size of the disk
	Allocated int64 // on the host
}

// maxSnapshotName bounds what is the name of a file.
const maxSnapshotName = 64

// CheckSnapshotName refuses names that a snapshot cannot have: lower-case
// letters, digits and inner hyphens, underscores and dots are allowed.
func CheckSnapshotName(name string) error {
	alnum := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }
	ok := len(name) > 0 && len(name) <= maxSnapshotName && alnum(name[0]) && alnum(name[len(name)-1])
	for i := 0; ok && i < len(name); i++ {
		ok = alnum(name[i]) || strings.IndexByte("-_.", name[i]) >= 0
	}
	if !ok {
		return errs.E(errs.Invalid, "the name of a snapshot is not valid").
			Hint("use at most %d lower-case letters, digits, hyphens, underscores and dots, a letter or digit first and last", maxSnapshotName)
	}
	return nil
}

// Storage is a set of disks. It is safe for concurrent use; acts on one disk
// wait for each other.
type Storage interface {
	Health
	// Admit says whether a disk may be made or brought up now. It is
	// errs.Exhausted, with a time to try again, while the host has less room
	// than the operator wants to keep.
	Admit() error
	// Create makes a disk. It is errs.Conflict when the disk exists,
	// errs.Invalid below [MinBytes], and errs.Exhausted when the host has no
	// room. After an error nothing is left.
	Create(ctx context.Context, uid sandbox.UID, layout Layout, bytes int64) error
	// Remove deletes a disk, or what is left of one, and says how many bytes of
	// the host it took. Removing what is gone does nothing. Whoever still uses
	// the disk gets I/O errors from then on, and none of its uses counts any
	// more.
	Remove(ctx context.Context, uid sandbox.UID) (freed int64, err error)
	// List names every disk of which any trace is left.
	List() ([]sandbox.UID, error)
	// Sweep removes the disks that wanted denies and returns them. It asks
	// about each disk after it has listed them all, so a disk whose want is
	// written down before it is made is safe. One about which wanted fails
	// stays: what could not be read is not unwanted.
	Sweep(ctx context.Context, wanted func(sandbox.UID) (bool, error)) (removed []sandbox.UID, err error)
	// Usage measures a disk. One that is not there is errs.NotFound.
	Usage(ctx context.Context, uid sandbox.UID) (Usage, error)

	// Attach mounts the disks of a sandbox that runs, or is about to, until
	// Detach. For a user that has them already it returns them once more. A
	// disk that is not there is errs.NotFound. After an error nothing counts.
	Attach(ctx context.Context, use Use) (Mounts, error)
	// Detach ends what a sandbox attached, and unmounts the disks that nobody
	// else uses: its own also if this process does not know of the use. A disk
	// that could not be unmounted is not used all the same; Rest tries again.
	Detach(ctx context.Context, user, own sandbox.UID) error
	// Files gives the files of a sandbox that does not run, which uses its disks
	// until done. Where it shares a disk, the workspace and outputs are that
	// one's; uploads are only read by sandboxes and not among them. Writing is
	// errs.Exhausted while the host is nearly full.
	Files(ctx context.Context, use Use) (tree Tree, done func(), err error)
	// Uploads is Files of the uploads of a shared disk, and of nothing else.
	Uploads(ctx context.Context, shared sandbox.UID) (tree Tree, done func(), err error)
	// InUse reports whether a disk is attached or its files are being used.
	InUse(uid sandbox.UID) bool
	// Rest unmounts the disks that nobody uses and whose files nobody has used
	// for a while.
	Rest(ctx context.Context) error
	// Release unmounts the disks that an earlier process left mounted: those of
	// which this one knows no use and that mayRun denies.
	Release(ctx context.Context, mayRun func(sandbox.UID) bool) error

	// Clone makes the disk to, of the size and with the content of from, and
	// says how long writers of from waited. Errors are those of Create, and
	// errs.NotFound when there is no such source.
	Clone(ctx context.Context, from Source, to sandbox.UID) (paused time.Duration, err error)
	// Snapshot keeps the content of a disk under a name, and says how long its
	// writers waited. A name that is taken is errs.Conflict, no such disk
	// errs.NotFound, a host without room errs.Exhausted. After an error nothing
	// is left.
	Snapshot(ctx context.Context, uid sandbox.UID, name string) (made Snapshot, paused time.Duration, err error)
	// Snapshots lists those of a disk, the oldest first.
	Snapshots(ctx context.Context, uid sandbox.UID) ([]Snapshot, error)
	// Prepare copies from, which may be a snapshot of the disk itself, another disk
	// or a snapshot of one, and stays as it is, for a restore of a disk that may be
	// in use until then. Errors are those of Clone, errs.Invalid when the disk is its
	// own source, and errs.Unsupported when the two are of different kinds.
	Prepare(ctx context.Context, uid sandbox.UID, from Source) (Restoration, error)
	// RemoveSnapshot deletes one, and says how many bytes of the host it took.
	// One that is not there is errs.NotFound.
	RemoveSnapshot(ctx context.Context, uid sandbox.UID, name string) (freed int64, err error)
}

// Restoration is a copy that a disk is about to be given. Discard ends each, for
// which there is nothing left to do after a Restore without an error.
type Restoration interface {
	// Restore gives a disk that nobody uses the content and the size of the copy's
	// source. The disk keeps its own snapshots. It is errs.Conflict while the disk
	// is in use, errs.NotFound when it is gone. After an error the disk has the
	// content from before. One restoration is good for one Restore.
	Restore(ctx context.Context) error
	// Discard removes a copy that no disk was given.
	Discard()
}

// Tree is the files of what does not run, as its paths inside have them. It is
// safe against whatever the guest left there: no name leads out of it.
type Tree interface {
	sandbox.Files
	// Restore is Extract of what Archive made, however many entries that has.
	Restore(ctx context.Context, name string, r io.Reader, user string) error
}
