// Package workspace keeps the durable disks of sandboxes: one sparse ext4
// image with a hard size for each, mounted through a loop device. It watches
// the space of the file system below them, refuses new disks when that runs
// low and freezes writers before it is gone, so that no sandbox loses what it
// wrote. Files on a disk are reached through [Disks.Tree] only, never by paths
// that a guest could have made.
//
// It does not decide who may have a disk or when one goes away; it knows no
// sandbox states.
package workspace

import (
	"context"
	"log/slog"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/filetree"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Config says where disks live and how much of the host they may use.
type Config struct {
	Dir string // made when missing; on a file system that can punch holes
	// Pool is how many ready disks are kept for each of the sizes in demand.
	Pool int
	// PoolBytes is the size that is in demand before anybody asked.
	PoolBytes int64
	// Reserve is how many bytes of the host stay free: below it no disk is
	// made, below half of it disks are frozen. 0: 5 % of the host's file
	// system, at least 1 GiB.
	Reserve int64
	// Overcommit bounds the sum of all disks' sizes as a multiple of the
	// host's file system. 0: no bound.
	Overcommit float64
	Log        *slog.Logger
	Now        func() time.Time
	// OnPressure is told when disks are frozen and thawed.
	OnPressure func(frozen bool, free int64)
}

// Disk is one mounted disk.
type Disk struct {
	UID   sandbox.UID
	Dir   string // holds workspace, home and root
	Bytes int64
	Quota bool // false: a plain directory without a hard size
}

// Usage is what a disk takes.
type Usage struct {
	Bytes     int64 // its size; 0 without quota
	Used      int64 // as df inside shows it
	Allocated int64 // on the host
}

// Tree is the file API of a stopped sandbox: /workspace and /home/sandbox.
type Tree = filetree.Tree

// Disks is the set of all disks below one directory.
type Disks struct{ cfg Config }

// New opens the directory and thaws what an earlier daemon left frozen. It
// starts nothing.
func New(cfg Config) (*Disks, error) { return &Disks{cfg: cfg}, nil }

var errTodo = errs.E(errs.Unsupported, "not there yet")

// Run keeps the pool filled and watches the host's space until ctx ends; then
// it thaws everything.
func (d *Disks) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Quota is nil when disks have a hard size on this host, else
// errs.Unsupported with a hint what is missing.
func (d *Disks) Quota() error { return errTodo }

// Admit says whether a disk may be made or brought up now: errs.Exhausted
// below the reserve.
func (d *Disks) Admit() error { return nil }

// Create makes a disk and mounts it. errs.Conflict when it exists,
// errs.Exhausted below the reserve or beyond the overcommit bound.
func (d *Disks) Create(ctx context.Context, uid sandbox.UID, bytes int64) (Disk, error) {
	return Disk{}, errTodo
}

// Mount mounts a disk that exists; a mounted one is returned as it is.
func (d *Disks) Mount(ctx context.Context, uid sandbox.UID) (Disk, error) { return Disk{}, errTodo }

// Unmount takes a disk down and keeps its content. Unmounting what is not
// mounted, or not there, does nothing.
func (d *Disks) Unmount(ctx context.Context, uid sandbox.UID) error { return errTodo }

// Remove unmounts and deletes a disk, or what is left of one, and says how
// many bytes of the host it took. Removing what is gone does nothing.
func (d *Disks) Remove(ctx context.Context, uid sandbox.UID) (freed int64, err error) {
	return 0, errTodo
}

// List names every disk of which any trace is left.
func (d *Disks) List() ([]sandbox.UID, error) { return nil, errTodo }

// Usage measures a disk.
func (d *Disks) Usage(ctx context.Context, uid sandbox.UID) (Usage, error) { return Usage{}, errTodo }

// Tree mounts the disk when it is not and gives the file API on it.
func (d *Disks) Tree(ctx context.Context, uid sandbox.UID) (*Tree, error) { return nil, errTodo }
