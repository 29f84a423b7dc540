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
// its size for good. Mounting it gives a directory of the host, whose content
// is the disk's until it is unmounted; both can be asked for again and again.
// Remove deletes it, whoever still uses it. Nothing else takes a file away from
// it: a disk survives the end of its sandbox, of the daemon and of the host.
//
// # After a crash
//
// A disk has its name only when it is whole: Create that was cut off leaves
// nothing behind once the next daemon has opened the storage. Remove that was
// cut off leaves a name that List has and that Remove takes away. What a guest
// wrote and synced is there; what it only wrote may be lost when the host dies,
// and only then. List names everything of which any trace is left, and fails
// rather than leave one out: what it does not name is gone.
//
// # A full host
//
// The sizes of disks are promises that together may exceed what the host has.
// Admit refuses new ones when little is free, and an implementation whose disks
// would lose data on a full host holds their writers before that: they wait,
// and lose nothing.
package storage

import (
	"context"
	"io"
	"io/fs"
	"iter"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// MinBytes is the smallest disk: less leaves no room beside a file system's own
// tables.
const MinBytes = 16 << 20

// Disk is one that is mounted.
type Disk struct {
	UID   sandbox.UID
	Dir   string // where it is mounted: holds workspace, home and root
	Bytes int64
	Quota bool // false: a plain directory without a hard size
}

// Usage is what a disk takes.
type Usage struct {
	Bytes     int64 // its size
	Used      int64 // as df inside shows it; 0 while it is not mounted
	Allocated int64 // on the host
}

// Storage is a set of disks. It is safe for concurrent use; acts on one disk
// wait for each other.
type Storage interface {
	// Admit says whether a disk may be made or brought up now. It is
	// errs.Exhausted, with a time to try again, while the host has less room
	// than the operator wants to keep.
	Admit() error
	// Create makes a disk and mounts it: the workspace and the home of the
	// default user are there, and ~/workspace leads to /workspace. It is
	// errs.Conflict when the disk exists, errs.Invalid below [MinBytes], and
	// errs.Exhausted when the host has no room. After an error nothing is left.
	Create(ctx context.Context, uid sandbox.UID, bytes int64) (Disk, error)
	// CreateShared is Create of a disk that sandboxes have in common, beside
	// their own: its directories are workspace, outputs and uploads.
	CreateShared(ctx context.Context, uid sandbox.UID, bytes int64) (Disk, error)
	// Mount mounts a disk that exists, also after a reboot; a mounted one is
	// returned as it is. A disk that is not there is errs.NotFound.
	Mount(ctx context.Context, uid sandbox.UID) (Disk, error)
	// Unmount takes a disk down and keeps its content. Unmounting what is not
	// mounted, or not there, does nothing.
	Unmount(ctx context.Context, uid sandbox.UID) error
	// Remove deletes a disk, or what is left of one, and says how many bytes of
	// the host it took. Removing what is gone does nothing. Whoever still uses
	// the disk gets I/O errors from then on.
	Remove(ctx context.Context, uid sandbox.UID) (freed int64, err error)
	// List names every disk of which any trace is left.
	List() ([]sandbox.UID, error)
	// Usage measures a disk. One that is not there is errs.NotFound.
	Usage(ctx context.Context, uid sandbox.UID) (Usage, error)

	// Tree mounts the disk when it is not and gives the files on it. Writing
	// through it is errs.Exhausted while the host is nearly full.
	Tree(ctx context.Context, uid sandbox.UID) (Tree, error)
	// SharedTree is Tree of a sandbox that shares another disk: the workspace
	// and outputs are that one's. Uploads are only read by sandboxes and not in
	// it.
	SharedTree(ctx context.Context, uid, shared sandbox.UID) (Tree, error)
	// UploadTree is the uploads of a shared disk, which is mounted when it is
	// not. It holds nothing but [sandbox.UploadsDir].
	UploadTree(ctx context.Context, shared sandbox.UID) (Tree, error)
}

// Tree is the files of what does not run, as its paths inside have them. It is
// safe against whatever the guest left there: no name leads out of it.
type Tree interface {
	Stat(ctx context.Context, name string, follow bool) (sandbox.File, error)
	ListFiles(ctx context.Context, name string, recursive bool) iter.Seq2[sandbox.File, error]
	Read(ctx context.Context, name string, offset, length int64) (io.ReadCloser, sandbox.File, error)
	Write(ctx context.Context, name string, r io.Reader, w sandbox.FileWrite) (sandbox.File, error)
	MakeDir(ctx context.Context, name string, mode fs.FileMode, parents bool, user string) (sandbox.File, error)
	Rename(ctx context.Context, from, to string, replace bool) (sandbox.File, error)
	Remove(ctx context.Context, name string, recursive bool) error
	Archive(ctx context.Context, name string) (io.ReadCloser, error)
	// Within is for names that must not lead out of a directory.
	ReadWithin(ctx context.Context, dir, name string, offset, length int64) (io.ReadCloser, sandbox.File, error)
	ArchiveWithin(ctx context.Context, dir, name string) (io.ReadCloser, error)
	Extract(ctx context.Context, name string, r io.Reader, user string) error
	// Restore is Extract of what Archive made, however many entries that has.
	Restore(ctx context.Context, name string, r io.Reader, user string) error
}
