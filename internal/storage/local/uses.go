package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// lingerTime is how long a disk stays mounted after its files were last used,
// so that ten thousand stopped sandboxes do not hold as many mounts.
const lingerTime = time.Minute

// uses knows who uses which disks. What is not in it nobody has used since this
// process began, or long ago.
type uses struct {
	mu    sync.Mutex
	disks map[sandbox.UID]*use // guarded by mu
}

// use is that of one disk. One without users lingers until it is taken out.
type use struct {
	users  map[sandbox.UID]*user
	shared bool      // somebody has it beside its own
	last   time.Time // when its files were last used
}

type user struct {
	runs  bool // it has attached the disk
	files int  // how many use its files
}

func (u *use) inUse() bool {
	for _, by := range u.users {
		if by.runs || by.files > 0 {
			return true
		}
	}
	return false
}

func (u *use) unused(since time.Time) bool { return !u.inUse() && !u.last.After(since) }

// of returns the use of a disk, which it makes when there is none. The caller
// has the mutex.
func (u *uses) of(uid sandbox.UID) *use {
	if u.disks == nil {
		u.disks = make(map[sandbox.UID]*use)
	}
	if u.disks[uid] == nil {
		u.disks[uid] = &use{users: make(map[sandbox.UID]*user)}
	}
	return u.disks[uid]
}

func (u *use) by(uid sandbox.UID) *user {
	if u.users[uid] == nil {
		u.users[uid] = &user{}
	}
	return u.users[uid]
}

// linger has a disk stay mounted for a while.
func (u *uses) linger(uid sandbox.UID, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.of(uid).last = now
}

// run counts a sandbox that runs. It reports whether it did not before.
func (u *uses) run(uid, by sandbox.UID, shared bool) (began bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	disk := u.of(uid)
	disk.shared = disk.shared || shared
	user := disk.by(by)
	began = !user.runs
	user.runs = true
	return began
}

// files counts one more use of a disk's files until end. The end of a use that
// went with its disk does nothing to one that was made anew.
func (u *uses) files(uid, by sandbox.UID) (end func(now time.Time)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	disk := u.of(uid)
	user := disk.by(by)
	user.files++
	return func(now time.Time) {
		u.mu.Lock()
		defer u.mu.Unlock()
		user.files--
		disk.last = now
	}
}

// endRun ends the use of a sandbox that ran.
func (u *uses) endRun(uid, by sandbox.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	disk := u.disks[uid]
	if disk == nil || disk.users[by] == nil {
		return
	}
	if disk.users[by].runs = false; disk.users[by].files == 0 {
		delete(disk.users, by)
	}
}

// drop takes a disk out.
func (u *uses) drop(uid sandbox.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.disks, uid)
}

func (u *uses) inUse(uid sandbox.UID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	disk := u.disks[uid]
	return disk != nil && disk.inUse()
}

// known reports whether a disk is used or lingers.
func (u *uses) known(uid sandbox.UID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.disks[uid] != nil
}

// disksOf returns the disks that a user has or had a use of.
func (u *uses) disksOf(by sandbox.UID) (all []sandbox.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for uid, disk := range u.disks {
		if disk.users[by] != nil {
			all = append(all, uid)
		}
	}
	return all
}

// unused returns the disks that nobody has used since.
func (u *uses) unused(since time.Time) (all []sandbox.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for uid, disk := range u.disks {
		if disk.unused(since) {
			all = append(all, uid)
		}
	}
	return all
}

// isUnused is unused for one disk.
func (u *uses) isUnused(uid sandbox.UID, since time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	disk := u.disks[uid]
	return disk != nil && disk.unused(since)
}

// InUse reports whether a disk is attached or its files are being used.
func (d *Disks) InUse(uid sandbox.UID) bool { return d.uses.inUse(uid) }

// Attach mounts the disks of a sandbox until Detach.
func (d *Disks) Attach(ctx context.Context, use storage.Use) (m storage.Mounts, err error) {
	var began bool
	m.Own, began, err = d.attachOne(ctx, use.Own, use.User, false)
	if err != nil || use.Shared == "" {
		return m, err
	}
	m.Shared, _, err = d.attachOne(ctx, use.Shared, use.User, true)
	if err != nil && began {
		d.uses.endRun(use.Own, use.User) // it stays mounted until Rest
	}
	return m, err
}

func (d *Disks) attachOne(ctx context.Context, uid, by sandbox.UID, shared bool) (disk storage.Disk, began bool, err error) {
	defer d.locks.Wait(string(uid))()
	if disk, err = d.mount(ctx, uid); err != nil {
		return disk, false, err
	}
	return disk, d.uses.run(uid, by, shared), nil
}

// Detach ends what a sandbox attached, and unmounts what nobody else uses.
func (d *Disks) Detach(_ context.Context, user, own sandbox.UID) error {
	all := d.uses.disksOf(user)
	if !slices.Contains(all, own) {
		all = append(all, own)
	}
	var failed []error
	for _, uid := range all {
		if err := d.detachOne(uid, user); err != nil {
			failed = append(failed, fmt.Errorf("disk %s: %w", uid, err))
		}
	}
	return errors.Join(failed...)
}

func (d *Disks) detachOne(uid, by sandbox.UID) error {
	defer d.locks.Wait(string(uid))()
	d.uses.endRun(uid, by)
	if d.uses.inUse(uid) {
		return nil
	}
	return d.takeDown(uid)
}

// takeDown unmounts a disk that nobody uses. The caller has the disk's lock. One
// that stays mounted is looked at again by the next Rest.
func (d *Disks) takeDown(uid sandbox.UID) error {
	if err := d.unmount(uid); err != nil {
		d.uses.linger(uid, time.Time{})
		return err
	}
	d.uses.drop(uid)
	return nil
}

// Rest unmounts the disks that nobody has used for a while.
func (d *Disks) Rest(ctx context.Context) error { return d.rest(ctx, d.cfg.Now().Add(-lingerTime)) }

// rest unmounts the disks that nobody has used since.
func (d *Disks) rest(ctx context.Context, since time.Time) error {
	return d.takeAllDown(ctx, d.uses.unused(since), func(uid sandbox.UID) bool { return d.uses.isUnused(uid, since) })
}

// Release unmounts the disks of which this process knows no use and that mayRun
// denies.
func (d *Disks) Release(ctx context.Context, mayRun func(sandbox.UID) bool) error {
	uids, err := d.List()
	if err != nil {
		return err
	}
	return d.takeAllDown(ctx, uids, func(uid sandbox.UID) bool {
		return mounted(d.dir(uid)) && !d.uses.known(uid) && !mayRun(uid)
	})
}

// takeAllDown unmounts disks of which unused is true while their lock is held.
// Where somebody has that lock it is his to say what becomes of the disk.
func (d *Disks) takeAllDown(ctx context.Context, uids []sandbox.UID, unused func(sandbox.UID) bool) error {
	var failed []error
	for _, uid := range uids {
		if ctx.Err() != nil {
			return errors.Join(append(failed, ctx.Err())...)
		}
		unlock, free := d.locks.TryLock(string(uid))
		if !free {
			continue
		}
		if unused(uid) {
			if err := d.takeDown(uid); err != nil {
				failed = append(failed, fmt.Errorf("disk %s: %w", uid, err))
			}
		}
		unlock()
	}
	return errors.Join(failed...)
}
