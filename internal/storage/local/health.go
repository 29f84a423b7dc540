package local

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// errorStates are the options of a mount whose file system writes nothing any more.
// Kernels before 6.15 know only the first one, and show nothing after a shutdown.
var errorStates = []string{"ro", "emergency_ro", "shutdown"}

// brokenMounts returns the state of each mount below a directory whose file system
// writes nothing any more, by mountpoint.
func brokenMounts(below string) (map[string]string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	return parseBroken(b, below), nil
}

// parseBroken reads lines such as
//
//	43 42 7:1 / /data/disks/u/mnt rw,nosuid - ext4 /dev/loop1 rw,errors=remount-ro,emergency_ro
func parseBroken(mountinfo []byte, below string) map[string]string {
	broken := make(map[string]string)
	for lines := bufio.NewScanner(bytes.NewReader(mountinfo)); lines.Scan(); {
		mount, super, ok := strings.Cut(lines.Text(), " - ")
		fields, of := strings.Fields(mount), strings.Fields(super)
		if !ok || len(fields) < 5 || len(of) < 3 || of[0] != "ext4" {
			continue
		}
		at := unescape.Replace(fields[4])
		if !strings.HasPrefix(at, below+"/") {
			continue
		}
		delete(broken, at) // a later mount hides an earlier one
		for _, option := range strings.Split(of[2], ",") {
			if slices.Contains(errorStates, option) {
				broken[at] = option
			}
		}
	}
	return broken
}

// unescape turns what mountinfo makes of spaces in paths back.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// watchFaults looks for disks with a fault, with very many mounts less often.
func (d *Disks) watchFaults(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		d.troubles.Note("disks cannot be examined", "", d.examine())
		timer.Reset(max(calmInterval, 50*time.Since(began)))
	}
}

// examine looks for disks whose file systems write nothing any more. A disk that
// somebody is at is looked at the next time.
func (d *Disks) examine() error {
	if d.loopErr != nil {
		return nil
	}
	broken, err := brokenMounts(d.cfg.Dir)
	if err != nil {
		return err
	}
	for at := range broken {
		dir := filepath.Dir(at)
		uid, err := sandbox.ParseUID(filepath.Base(dir))
		switch {
		case filepath.Dir(dir) == filepath.Join(d.cfg.Dir, poolName):
			// Nobody has it yet, and nobody shall.
			if d.pool.remove(dir) {
				d.cfg.Log.Warn("a ready disk cannot be written to and is removed", "dir", dir)
				d.discard(dir)
			}
		case err == nil && d.dir(uid) == dir:
			d.noteFault(uid)
		}
	}
	return nil
}

// noteFault notes the fault of a disk that was seen to have one, unless that is
// known, or over by now.
func (d *Disks) noteFault(uid sandbox.UID) {
	unlock, free := d.locks.TryLock(string(uid))
	if !free {
		return
	}
	defer unlock()
	broken, err := brokenMounts(d.dir(uid))
	state, is := broken[d.mnt(uid)]
	if err != nil || !is {
		return
	}
	users, shared := d.uses.running(uid)
	if len(users) == 0 && !d.uses.inUse(uid) && d.uses.known(uid) {
		// Taking it down is all that a repair needs.
		if err := d.takeDown(uid); err == nil {
			return
		}
	}
	fault := storage.Fault{Disk: uid, Shared: shared, Users: users, State: state, Since: d.cfg.Now()}
	d.mu.Lock()
	_, known := d.faults[uid]
	note := !known && !d.severed[uid]
	if note {
		d.faults[uid] = fault
	}
	d.mu.Unlock()
	if note {
		d.cfg.Log.Error("a disk cannot be written to any more: writing to the host's disk failed", "disk", string(uid), "state", state)
		d.cfg.OnFault(fault, false)
	}
}

// Faults are those that are known and not over.
func (d *Disks) Faults() []storage.Fault {
	d.mu.Lock()
	all := make([]storage.Fault, 0, len(d.faults))
	for _, f := range d.faults {
		all = append(all, f)
	}
	d.mu.Unlock()
	for i := range all {
		all[i].Users, all[i].Shared = d.uses.running(all[i].Disk)
	}
	return all
}

// Writable is nil while writes to the disks of a sandbox go through.
func (d *Disks) Writable(user sandbox.UID) error {
	d.mu.Lock()
	frozen, faulty := d.frozen && d.loopErr == nil, len(d.faults) > 0
	d.mu.Unlock()
	if faulty {
		for _, uid := range d.uses.disksOf(user) {
			d.mu.Lock()
			f, is := d.faults[uid]
			d.mu.Unlock()
			if is {
				return f.Err()
			}
		}
	}
	if frozen {
		return hostFull()
	}
	return nil
}

// Examine is Writable after a look at the disks.
func (d *Disks) Examine(user sandbox.UID) error {
	d.troubles.Note("disks cannot be examined", "", d.examine())
	return d.Writable(user)
}

// Sync writes what the disks of a sandbox have and waits for that. Where writers are held
// the wait goes on behind an end of ctx.
func (d *Disks) Sync(ctx context.Context, user sandbox.UID) error {
	for _, uid := range d.uses.disksOf(user) {
		f, err := os.Open(d.mnt(uid))
		if err == nil {
			done := make(chan error, 1)
			go func() {
				defer f.Close()
				done <- unix.Syncfs(int(f.Fd()))
			}()
			select {
			case err = <-done:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err != nil {
			return errs.E(errs.Unavailable, "the sandbox's disk could not be written to").Because(err)
		}
	}
	return nil
}

// severPause is how often Sever looks whether writers are held.
const severPause = 100 * time.Millisecond

// Sever lets the processes of a sandbox end whose own disk is about to be removed.
func (d *Disks) Sever(user, own sandbox.UID) (done func()) {
	if d.loopErr != nil {
		return func() {}
	}
	stop := make(chan struct{})
	var severing sync.WaitGroup
	severing.Go(func() {
		t := time.NewTicker(severPause)
		defer t.Stop()
		for {
			if d.isFrozen() {
				d.sever(user, own)
			}
			select {
			case <-stop:
				return
			case <-t.C:
			}
		}
	})
	return sync.OnceFunc(func() {
		close(stop)
		severing.Wait()
	})
}

func (d *Disks) sever(user, own sandbox.UID) {
	d.mu.Lock()
	before := d.severed[own]
	d.severed[own] = true
	d.mu.Unlock()
	if !before && mounted(d.dir(own)) {
		shutDown(d.mnt(own)) // first: nothing may be written to it after the thaw
	}
	d.thaw(own)
	for _, uid := range d.uses.disksOf(user) {
		if uid == own {
			continue
		}
		// The watch freezes it again.
		d.thaw(uid)
		d.mu.Lock()
		delete(d.frozenAt, uid)
		d.mu.Unlock()
	}
}

// running returns the sandboxes that have a disk attached, and whether any has it
// beside its own.
func (u *uses) running(uid sandbox.UID) (users []sandbox.UID, shared bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	disk := u.disks[uid]
	if disk == nil {
		return nil, false
	}
	for by, user := range disk.users {
		if user.runs {
			users = append(users, by)
		}
	}
	slices.Sort(users)
	return users, disk.shared
}
