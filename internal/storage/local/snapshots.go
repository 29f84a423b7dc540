package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/hostdisk"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

const (
	snapshotsName = "snapshots" // in a disk's directory
	infoName      = "info.json" // in a snapshot's
)

// snapshotInfo is what is written beside a snapshot's content. It is part of
// the data directory's format.
type snapshotInfo struct {
	CreatedAt time.Time `json:"created_at"`
	Bytes     int64     `json:"bytes"`
	Allocated int64     `json:"allocated"`
}

func (d *Disks) snapshotDir(uid sandbox.UID, name string) string {
	return filepath.Join(d.dir(uid), snapshotsName, name)
}

// readSnapshots returns the snapshots in a disk's directory, the oldest first.
func readSnapshots(dir string) ([]storage.Snapshot, error) {
	entries, err := os.ReadDir(filepath.Join(dir, snapshotsName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var all []storage.Snapshot
	for _, e := range entries {
		s, err := readSnapshot(filepath.Join(dir, snapshotsName, e.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	slices.SortStableFunc(all, func(a, b storage.Snapshot) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return all, nil
}

func readSnapshot(dir string) (storage.Snapshot, error) {
	b, err := os.ReadFile(filepath.Join(dir, infoName))
	if errors.Is(err, fs.ErrNotExist) {
		return storage.Snapshot{}, errs.E(errs.NotFound, "no such snapshot").Because(err)
	}
	var info snapshotInfo
	if err == nil {
		err = json.Unmarshal(b, &info)
	}
	if err != nil {
		return storage.Snapshot{}, fmt.Errorf("read what is noted of a snapshot: %w", err)
	}
	return storage.Snapshot{Name: filepath.Base(dir), CreatedAt: info.CreatedAt, Bytes: info.Bytes, Allocated: info.Allocated}, nil
}

// snapshotBytes is what the snapshots in a disk's directory take on the host.
func snapshotBytes(dir string) (sum int64, err error) {
	all, err := readSnapshots(dir)
	for _, s := range all {
		sum += s.Allocated
	}
	return sum, err
}

// exists is errs.NotFound when there is no such disk. The caller has its lock.
func (d *Disks) exists(uid sandbox.UID) error {
	for _, name := range []string{imageName, plainName} {
		_, err := os.Lstat(filepath.Join(d.dir(uid), name))
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return errs.E(errs.NotFound, "no such disk")
}

// still runs fn while nobody writes to a disk, whose lock the caller has, and
// says how long writers waited. A plain directory has no way to hold them, so
// one that is in use is errs.Conflict.
func (d *Disks) still(ctx context.Context, uid sandbox.UID, fn func() error) (paused time.Duration, err error) {
	if isPlain(d.dir(uid)) {
		if d.uses.inUse(uid) {
			return 0, errs.E(errs.Conflict, "the disk is in use, and the host cannot hold its writers").Hint("stop the sandbox first")
		}
		return 0, fn()
	}
	if !mounted(d.dir(uid)) {
		held, err := loopsOf(d.image(uid))
		if err != nil {
			return 0, err
		}
		if len(held) == 0 {
			return 0, fn()
		}
		// Alive where nobody sees it, as in the mount namespace of a container
		// that ends: a mount of the same device reaches its writers too.
		if _, err := d.mount(ctx, uid); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, d.takeDown(uid)) }()
	}
	thaw, err := d.hold(uid)
	if err != nil {
		return 0, err
	}
	defer func() { paused = thaw() }()
	return 0, fn()
}

// hold freezes a disk that is mounted for a copy. The thaw says how long that
// was.
func (d *Disks) hold(uid sandbox.UID) (thaw func() time.Duration, err error) {
	// Open until the thaw: a process that has no more descriptors must not leave
	// the disk frozen.
	f, err := openMount(d.mnt(uid))
	if err != nil {
		return nil, fmt.Errorf("hold the writers of a disk: %w", err)
	}
	// What can be written out before is not waited for by the writers.
	_ = unix.Syncfs(int(f.Fd())) // the freeze does it again, and fails
	d.mu.Lock()
	if d.frozen || d.frozenAt[uid] {
		d.mu.Unlock()
		f.Close()
		return nil, hostFull()
	}
	d.copying[uid] = true
	d.mu.Unlock()
	release := func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.copying, uid)
		f.Close()
	}
	began := time.Now()
	err = mountRequest(f, fiFreeze, 0)
	if errors.Is(err, unix.EBUSY) {
		release()
		return nil, errs.E(errs.Unavailable, "the disk is just frozen by somebody else").Hint("try again").RetryAfter(time.Second)
	}
	if err != nil {
		release()
		return nil, fmt.Errorf("hold the writers of a disk: %w", err)
	}
	return func() time.Duration {
		_ = mountRequest(f, fiThaw, 0) // nobody could do more about it
		release()
		return time.Since(began)
	}, nil
}

// admitCopy is Admit for what is about to take so many bytes.
func (d *Disks) admitCopy(bytes int64) error {
	s, err := hostdisk.Measure(d.cfg.Dir)
	if err != nil {
		return err
	}
	if s.Free-bytes < d.cfg.Reserve || d.isFrozen() {
		return hostFull()
	}
	return nil
}

// Snapshot keeps the content of a disk under a name. Blocks that the snapshot
// shares with the disk, where the host's file system can do that, are not
// counted on: the disk may come to be written all over.
func (d *Disks) Snapshot(ctx context.Context, uid sandbox.UID, name string) (made storage.Snapshot, paused time.Duration, err error) {
	if err := storage.CheckSnapshotName(name); err != nil {
		return made, 0, err
	}
	defer d.locks.Wait(string(uid))()
	if err := d.exists(uid); err != nil {
		return made, 0, err
	}
	if _, err := os.Lstat(d.snapshotDir(uid, name)); err == nil {
		return made, 0, errs.E(errs.Conflict, "the disk has a snapshot %q already", name)
	}
	need := allocated(d.dir(uid))
	if err := d.admitCopy(need); err != nil {
		return made, 0, err
	}
	if err := d.promise(need); err != nil {
		return made, 0, err
	}
	defer func() {
		// What it was booked with was a guess.
		d.unpromise(need - made.Allocated)
	}()
	dir, err := d.copyDisk(ctx, d.dir(uid), func(copies func() error) (err error) {
		paused, err = d.still(ctx, uid, copies)
		return err
	})
	if err != nil {
		return storage.Snapshot{}, paused, err
	}
	s := storage.Snapshot{Name: name, CreatedAt: d.cfg.Now(), Bytes: d.bytes(uid), Allocated: allocated(dir)}
	if err := d.publish(dir, d.snapshotDir(uid, name), s); err != nil {
		d.discard(dir)
		return storage.Snapshot{}, paused, err
	}
	made = s
	return made, paused, nil
}

// publish gives a snapshot its name.
func (d *Disks) publish(dir, name string, s storage.Snapshot) error {
	b, err := json.Marshal(snapshotInfo{CreatedAt: s.CreatedAt, Bytes: s.Bytes, Allocated: s.Allocated})
	if err != nil {
		return fmt.Errorf("note a snapshot: %w", err)
	}
	if err := writeSynced(filepath.Join(dir, infoName), b); err != nil {
		return fmt.Errorf("note a snapshot: %w", err)
	}
	above := filepath.Dir(name)
	if err := os.Mkdir(above, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("give a snapshot its name: %w", err)
	}
	for _, step := range []func() error{
		func() error { return syncDir(dir) },
		func() error { return os.Rename(dir, name) },
		func() error { return syncDir(above) },
		func() error { return syncDir(filepath.Dir(above)) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("give a snapshot its name: %w", err)
		}
	}
	return nil
}

func writeSynced(name string, b []byte) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Snapshots lists those of a disk, the oldest first.
func (d *Disks) Snapshots(_ context.Context, uid sandbox.UID) ([]storage.Snapshot, error) {
	defer d.locks.Wait(string(uid))()
	if err := d.exists(uid); err != nil {
		return nil, err
	}
	return readSnapshots(d.dir(uid))
}

// findSnapshot returns a snapshot. The caller has the disk's lock.
func (d *Disks) findSnapshot(uid sandbox.UID, name string) (storage.Snapshot, error) {
	if err := storage.CheckSnapshotName(name); err != nil {
		return storage.Snapshot{}, err
	}
	if err := d.exists(uid); err != nil {
		return storage.Snapshot{}, err
	}
	return readSnapshot(d.snapshotDir(uid, name))
}

// RemoveSnapshot deletes a snapshot and says what it took on the host.
func (d *Disks) RemoveSnapshot(_ context.Context, uid sandbox.UID, name string) (freed int64, err error) {
	defer d.locks.Wait(string(uid))()
	s, err := d.findSnapshot(uid, name)
	if err != nil {
		return 0, err
	}
	// Out of sight in one step; what a crash leaves then is swept.
	away, err := os.MkdirTemp(filepath.Join(d.cfg.Dir, poolName), unfinished)
	if err != nil {
		return 0, fmt.Errorf("remove a snapshot: %w", err)
	}
	if err := os.Rename(d.snapshotDir(uid, name), filepath.Join(away, name)); err != nil {
		d.discard(away)
		return 0, fmt.Errorf("remove a snapshot: %w", err)
	}
	d.unpromise(s.Allocated)
	d.discard(away)
	return s.Allocated, nil
}

// lockBoth takes the locks of two disks, always in the same order: two copies
// must not wait for each other.
func (d *Disks) lockBoth(a, b sandbox.UID) (unlock func(), err error) {
	unlockA, unlockB, err := d.lockEach(a, b)
	return func() { unlockB(); unlockA() }, err
}

// lockEach is lockBoth with an end for each. Of one disk the first ends both.
func (d *Disks) lockEach(a, b sandbox.UID) (unlockA, unlockB func(), err error) {
	for _, uid := range []sandbox.UID{a, b} {
		if _, err := sandbox.ParseUID(string(uid)); err != nil {
			return nil, nil, err
		}
	}
	switch {
	case a == b:
		return d.locks.Wait(string(a)), func() {}, nil
	case a > b:
		unlockB = d.locks.Wait(string(b))
		return d.locks.Wait(string(a)), unlockB, nil
	}
	unlockA = d.locks.Wait(string(a))
	return unlockA, d.locks.Wait(string(b)), nil
}

// copySource makes an unfinished disk with the content of a source, which is not
// synced, and says how long writers of the source waited.
func (d *Disks) copySource(ctx context.Context, from storage.Source, at string) (dir string, paused time.Duration, err error) {
	if from.Snapshot != "" || from.Still && isPlain(at) {
		dir, err = d.copyUnsynced(ctx, at, unheld)
		return dir, 0, err
	}
	dir, err = d.copyUnsynced(ctx, at, func(copies func() error) (err error) {
		paused, err = d.still(ctx, from.UID, copies)
		return err
	})
	return dir, paused, err
}

// wantReleased is errs.Conflict while the image of a disk that is not mounted is
// alive where nobody sees it: as in a container that an earlier daemon started
// and nobody has attached again. It would write on to an image without a name. A
// container that is just starting has copied every mount of the host, and lets go
// of them soon.
func (d *Disks) wantReleased(ctx context.Context, uid sandbox.UID) error {
	released, err := waitReleased(ctx, d.startWait, func() (bool, error) {
		held, err := loopsOf(d.image(uid))
		return len(held) > 0, err
	})
	if err == nil && !released {
		err = errs.E(errs.Conflict, "the disk is in use").Hint("stop the sandbox first, or try again when it has ended")
	}
	return err
}

// Clone makes a disk with the content of another, or of a snapshot.
func (d *Disks) Clone(ctx context.Context, from storage.Source, to sandbox.UID) (paused time.Duration, err error) {
	unlock, err := d.lockBoth(from.UID, to)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if _, err := os.Lstat(d.dir(to)); err == nil {
		return 0, errs.E(errs.Conflict, "the disk exists already")
	}
	bytes, need, source, err := d.source(from)
	if err != nil {
		return 0, err
	}
	if err := d.admitCopy(need); err != nil {
		return 0, err
	}
	if err := d.promise(bytes); err != nil {
		return 0, err
	}
	err = d.create(to, func() (dir string, err error) {
		if dir, paused, err = d.copySource(ctx, from, source); err == nil {
			err = d.synced(ctx, dir)
		}
		return dir, err
	})
	if err == nil {
		if err = syncDir(d.cfg.Dir); err != nil {
			d.discard(d.dir(to))
		}
	}
	if err != nil {
		d.unpromise(bytes)
	}
	return paused, err
}

// source finds what a copy is made of: the size of its disk, what it takes on
// the host, and where it is.
func (d *Disks) source(from storage.Source) (bytes, need int64, dir string, err error) {
	if from.Snapshot != "" {
		s, err := d.findSnapshot(from.UID, from.Snapshot)
		return s.Bytes, s.Allocated, d.snapshotDir(from.UID, from.Snapshot), err
	}
	if err := d.exists(from.UID); err != nil {
		return 0, 0, "", err
	}
	dir = d.dir(from.UID)
	return d.bytes(from.UID), allocated(dir), dir, nil
}
