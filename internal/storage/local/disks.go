// Package local is the storage that keeps disks on the host: one sparse ext4
// image with a hard size for each, mounted through a loop device, or a plain
// directory where the host has no loop devices. It watches the space of the
// file system below them, refuses new disks when that runs low and freezes
// writers before it is gone, so that no sandbox loses what it wrote. Files on a
// disk are reached through [Disks.Files] only, never by paths that a guest could
// have made.
//
// It does not decide who may have a disk or when one goes away; it knows no
// sandbox states.
//
// # On the host
//
// Dir holds one directory per disk, named by its uid, with the image, the
// mountpoint and a directory for each snapshot; ready disks lie in the same
// form, formatted and mounted, in Dir/pool. Taking one is a single rename, which
// carries the mount along. What is being made lies there too, under a name that
// the next New sweeps.
// Loop devices clear themselves when nobody uses them any more, so a daemon
// that is killed at any point leaves at worst a directory that List names or
// that the next New sweeps. A device of the directory that is attached all the same,
// and has no file system mounted, is detached by New.
package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/hostdisk"
	"github.com/cubbyhq/cubby/internal/keylock"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Config says where disks live and how much of the host they may use.
type Config struct {
	Dir string // made when missing; on a file system that can punch holes
	// Pool is how many ready disks are kept for each of the sizes in demand.
	Pool int
	// PoolBytes is the size that is in demand before anybody asked.
	PoolBytes int64
	// Reserve is how many bytes of the host stay free: below it no disk is
	// made, below half of it disks are frozen. 0: see [hostdisk.Space.Reserve].
	Reserve int64
	// Overcommit bounds the sum of all disks' sizes as a multiple of the
	// host's file system. 0: no bound.
	Overcommit float64
	// Plain makes disks plain directories without quota although the host
	// could do better, for tests that must not mount.
	Plain bool
	Log   *slog.Logger
	Now   func() time.Time
	// OnPressure is told when disks are frozen and thawed.
	OnPressure storage.Pressure
	// OnFault is told of disks that cannot be written to any more, and of their end.
	OnFault storage.OnFault
}

// Disks is the set of all disks below one directory. It is safe for concurrent
// use; acts on one disk wait for each other.
type Disks struct {
	cfg     Config
	loopErr error  // why disks have no hard size here
	mkfs    string // program
	format  *semaphore.Weighted
	locks   keylock.Locks
	pool    pool
	uses    uses
	// troubles logs what its loops meet again and again.
	troubles *telemetry.Troubles
	// startWait is what containers that are just starting may take to let go of the
	// mounts that they have copied.
	startWait time.Duration

	mu       sync.Mutex
	frozen   bool
	frozenAt map[sandbox.UID]bool          // guarded by mu: disks that this process froze
	severed  map[sandbox.UID]bool          // guarded by mu: disks that are shut down, to be removed
	faults   map[sandbox.UID]storage.Fault // guarded by mu
	copying  map[sandbox.UID]bool          // guarded by mu: disks that are held still while they are copied
	promised int64                         // guarded by mu: sum of all disks' sizes, and of what snapshots take
}

var _ storage.Storage = (*Disks)(nil)

const (
	imageName = "disk.img"
	mountName = "mnt"
	plainName = "plain" // instead of the image: a directory without quota
	poolName  = "pool"
)

// New opens the directory, sweeps disks that were never finished and thaws
// what an earlier daemon left frozen. It starts nothing.
func New(cfg Config) (*Disks, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.OnPressure == nil {
		cfg.OnPressure = func(bool, int64) {}
	}
	if cfg.OnFault == nil {
		cfg.OnFault = func(storage.Fault, bool) {}
	}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, poolName), 0o700); err != nil {
		return nil, fmt.Errorf("make the disk directory: %w", err)
	}
	// The kernel names mounts and backing files by real paths.
	dir, err := filepath.EvalSymlinks(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("open the disk directory: %w", err)
	}
	if cfg.Dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("open the disk directory: %w", err)
	}
	if err := os.Chmod(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("close the disk directory to others: %w", err)
	}
	d := &Disks{
		cfg:       cfg,
		format:    semaphore.NewWeighted(maxFormats),
		startWait: startWait,
		troubles:  telemetry.NewTroubles(cfg.Log, cfg.Now),
		frozenAt:  map[sandbox.UID]bool{},
		severed:   map[sandbox.UID]bool{},
		faults:    map[sandbox.UID]storage.Fault{},
		copying:   map[sandbox.UID]bool{},
	}
	if d.mkfs, d.loopErr = probe(); cfg.Plain {
		d.loopErr = errs.E(errs.Unsupported, "disks are plain directories")
	}
	space, err := hostdisk.Measure(cfg.Dir)
	if err != nil {
		return nil, err
	}
	d.cfg.Reserve = space.Reserve(cfg.Reserve)
	uids, err := d.List()
	if err != nil {
		return nil, err
	}
	for _, uid := range uids {
		d.thaw(uid)
		size, snapshots := d.booked(uid)
		d.promised += size + snapshots
	}
	if err := d.openPool(); err != nil {
		return nil, err
	}
	return d, d.detachUnused()
}

// Quota is nil when disks have a hard size on this host, else
// errs.Unsupported with a hint what is missing.
func (d *Disks) Quota() error { return d.loopErr }

func (d *Disks) dir(uid sandbox.UID) string   { return filepath.Join(d.cfg.Dir, string(uid)) }
func (d *Disks) mnt(uid sandbox.UID) string   { return filepath.Join(d.dir(uid), mountName) }
func (d *Disks) image(uid sandbox.UID) string { return filepath.Join(d.dir(uid), imageName) }

// bytes is the size of a disk, 0 when there is none.
func (d *Disks) bytes(uid sandbox.UID) int64 {
	if st, err := os.Stat(d.image(uid)); err == nil {
		return st.Size()
	}
	b, err := os.ReadFile(filepath.Join(d.dir(uid), plainName))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n
}

// Create makes a disk. It stays mounted for a while: whoever has it made is
// about to use it.
func (d *Disks) Create(ctx context.Context, uid sandbox.UID, layout storage.Layout, bytes int64) error {
	if _, err := sandbox.ParseUID(string(uid)); err != nil {
		return err
	}
	if bytes < storage.MinBytes {
		return errs.E(errs.Invalid, "a disk of %d bytes is too small", bytes).Hint("the smallest is %d MiB", storage.MinBytes>>20)
	}
	defer d.locks.Wait(string(uid))()
	if _, err := os.Lstat(d.dir(uid)); err == nil {
		return errs.E(errs.Conflict, "the disk exists already")
	}
	if err := d.Admit(); err != nil {
		return err
	}
	if err := d.promise(bytes); err != nil {
		return err
	}
	err := d.create(uid, func() (dir string, err error) {
		if layout == storage.Own {
			if ready, ok := d.take(bytes); ok {
				return ready, nil
			}
			return d.build(ctx, bytes, ownDirs())
		}
		return d.build(ctx, bytes, sharedDirs())
	})
	if err != nil {
		d.unpromise(bytes)
		return err
	}
	d.uses.linger(uid, d.cfg.Now())
	return nil
}

func (d *Disks) create(uid sandbox.UID, build func() (dir string, err error)) error {
	ready, err := build()
	if err != nil {
		return err
	}
	if err := os.Rename(ready, d.dir(uid)); err != nil {
		d.discard(ready)
		return fmt.Errorf("give the disk its name: %w", err)
	}
	return nil
}

// mount mounts a disk that exists, also after a reboot; a mounted one is
// returned as it is. The caller has the disk's lock.
func (d *Disks) mount(ctx context.Context, uid sandbox.UID) (storage.Disk, error) {
	disk := storage.Disk{UID: uid, Dir: d.mnt(uid)}
	switch st, err := os.Stat(d.image(uid)); {
	case err == nil:
		disk.Bytes, disk.Quota = st.Size(), true
	case !errors.Is(err, fs.ErrNotExist):
		return storage.Disk{}, fmt.Errorf("look at the disk: %w", err)
	default:
		if _, err := os.Stat(filepath.Join(d.dir(uid), plainName)); err != nil {
			return storage.Disk{}, errs.E(errs.NotFound, "no such disk").Because(err)
		}
		disk.Bytes = d.bytes(uid)
		return disk, nil
	}
	if mounted(d.dir(uid)) {
		return disk, nil
	}
	if d.loopErr != nil {
		return storage.Disk{}, d.loopErr
	}
	if d.isFrozen() {
		return storage.Disk{}, hostFull()
	}
	if err := mountImage(ctx, d.dir(uid)); err != nil {
		return storage.Disk{}, err
	}
	if err := checkDirs(disk.Dir); err != nil {
		return storage.Disk{}, errors.Join(err, unmountDir(d.dir(uid)))
	}
	return disk, nil
}

// unmount takes a disk down and keeps its content. The caller has the disk's
// lock.
func (d *Disks) unmount(uid sandbox.UID) error {
	d.forget(uid)
	return unmountDir(d.dir(uid))
}

// booked is what a disk and its snapshots are promised. What is not known of the
// snapshots is not counted.
func (d *Disks) booked(uid sandbox.UID) (size, snapshots int64) {
	snapshots, err := snapshotBytes(d.dir(uid))
	if err != nil {
		d.cfg.Log.Warn("what the snapshots of a disk take is not known", "disk", string(uid), "err", err)
	}
	return d.bytes(uid), snapshots
}

// forget drops what is known of a mount that is about to end: an unmount thaws by
// itself.
func (d *Disks) forget(uid sandbox.UID) {
	d.mu.Lock()
	delete(d.frozenAt, uid)
	fault, was := d.faults[uid]
	delete(d.faults, uid)
	d.mu.Unlock()
	if was {
		d.cfg.OnFault(fault, true)
	}
}

// Remove deletes a disk, or what is left of one, and says how many bytes of
// the host it took. Removing what is gone does nothing. Whoever still uses the
// disk gets I/O errors from then on; its device goes away with its last user.
func (d *Disks) Remove(ctx context.Context, uid sandbox.UID) (freed int64, err error) {
	if _, err := sandbox.ParseUID(string(uid)); err != nil {
		return 0, err
	}
	defer d.locks.Wait(string(uid))()
	size, snapshots := d.booked(uid)
	freed = allocated(d.dir(uid)) + snapshots
	d.mu.Lock()
	if f, is := d.faults[uid]; is {
		f.Users = nil // of a disk that is removed nobody is told that it can be written to
		d.faults[uid] = f
	}
	d.mu.Unlock()
	d.forget(uid)
	if err := destroyDir(ctx, d.dir(uid)); err != nil {
		// The next attempt gives back what is left, and does not find the rest.
		leftSize, leftSnapshots := d.booked(uid)
		d.unpromise(size + snapshots - leftSize - leftSnapshots)
		return 0, fmt.Errorf("remove the disk: %w", err)
	}
	d.unpromise(size + snapshots)
	d.uses.drop(uid)
	d.mu.Lock()
	delete(d.severed, uid)
	d.mu.Unlock()
	d.troubles.Forget(string(uid))
	return freed, nil
}

// List names every disk of which any trace is left. Ready disks of the pool
// are not among them.
func (d *Disks) List() ([]sandbox.UID, error) {
	entries, err := os.ReadDir(d.cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("list disks: %w", err)
	}
	var uids []sandbox.UID
	seen := map[sandbox.UID]bool{}
	add := func(name string) {
		if uid, err := sandbox.ParseUID(name); err == nil && !seen[uid] {
			seen[uid] = true
			uids = append(uids, uid)
		}
	}
	for _, e := range entries {
		add(e.Name())
	}
	if d.cfg.Plain {
		return uids, nil
	}
	// Devices whose directory somebody else removed.
	loops, err := loopsBelow(d.cfg.Dir)
	if err != nil {
		return nil, err
	}
	for _, l := range loops {
		rel, _ := filepath.Rel(d.cfg.Dir, l.backing)
		name, _, _ := strings.Cut(rel, "/")
		add(name)
	}
	return uids, nil
}

// Sweep removes the disks that wanted denies and returns them.
func (d *Disks) Sweep(ctx context.Context, wanted func(sandbox.UID) (bool, error)) (removed []sandbox.UID, err error) {
	uids, err := d.List()
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, uid := range uids {
		yes, err := wanted(uid)
		if err == nil && !yes {
			if _, err = d.Remove(ctx, uid); err == nil {
				removed = append(removed, uid)
			}
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return removed, errors.Join(failed...)
}

// Usage measures a disk.
func (d *Disks) Usage(_ context.Context, uid sandbox.UID) (storage.Usage, error) {
	if _, err := os.Lstat(d.dir(uid)); err != nil {
		return storage.Usage{}, errs.E(errs.NotFound, "no such disk").Because(err)
	}
	snapshots, err := snapshotBytes(d.dir(uid))
	if err != nil {
		return storage.Usage{}, err
	}
	u := storage.Usage{Bytes: d.bytes(uid), Allocated: allocated(d.dir(uid)), Snapshots: snapshots}
	if !mounted(d.dir(uid)) {
		if _, err := os.Stat(d.image(uid)); err != nil {
			u.Used = u.Allocated
		}
		return u, nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(d.mnt(uid), &st); err != nil {
		return storage.Usage{}, fmt.Errorf("measure the disk: %w", err)
	}
	u.Used = int64(st.Blocks-st.Bfree) * st.Bsize
	return u, nil
}
