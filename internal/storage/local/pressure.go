package local

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/hostdisk"
	"github.com/cubbyhq/cubby/internal/meminfo"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func hostFull() error {
	return errs.E(errs.Exhausted, "the host's disk is nearly full").
		Hint("free space on the host, or remove sandboxes that are not needed").RetryAfter(30 * time.Second)
}

// Admit says whether a disk may be made or brought up now. It is
// errs.Exhausted, with a time to try again, while the host's file system has
// less than the reserve.
func (d *Disks) Admit() error {
	s, err := hostdisk.Measure(d.cfg.Dir)
	if err != nil {
		return err
	}
	if s.Free < d.cfg.Reserve || d.isFrozen() {
		return hostFull()
	}
	return nil
}

// promise books a size against the overcommit bound.
func (d *Disks) promise(bytes int64) error {
	s, err := hostdisk.Measure(d.cfg.Dir)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cfg.Overcommit > 0 && float64(d.promised+bytes) > d.cfg.Overcommit*float64(s.Total) {
		return errs.E(errs.Exhausted, "the sandboxes' disks together would be larger than this host allows").
			Hint("remove sandboxes, ask for a smaller disk, or raise the overcommit setting").RetryAfter(30 * time.Second)
	}
	d.promised += bytes
	return nil
}

func (d *Disks) unpromise(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.promised -= bytes
}

func (d *Disks) isFrozen() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.frozen
}

// Run keeps the pool filled and watches the host's space until ctx ends. When
// less than half the reserve is free it freezes all disks: who writes waits,
// and nothing is lost; when three quarters are free again it thaws them. Before
// it returns it thaws everything, and unmounts what nobody uses.
func (d *Disks) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { d.keepPool(ctx) })
	wg.Go(func() { d.watchFaults(ctx) })
	d.watch(ctx)
	wg.Wait()
	if err := d.rest(context.WithoutCancel(ctx), d.cfg.Now()); err != nil {
		d.cfg.Log.Warn("disks that nobody uses stay mounted", "err", err)
	}
	return nil
}

// The host is looked at before what is left until disks are frozen can be
// written, even by the fastest disk, but no more often and no more seldom than this.
const (
	calmInterval  = time.Second
	tenseInterval = 50 * time.Millisecond
	fastest       = 8 << 30 // bytes in a second
)

// pause is how long there is nothing to do with so many bytes left.
func pause(left int64) time.Duration {
	takes := time.Duration(float64(left) / fastest * float64(time.Second))
	return min(max(takes, tenseInterval), calmInterval)
}

func (d *Disks) watch(ctx context.Context) {
	defer d.relieve()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(d.check())
	}
}

// check looks at the host once, acts, and says when to look again.
func (d *Disks) check() time.Duration {
	s, err := hostdisk.Measure(d.cfg.Dir)
	d.troubles.Note("the host's free space is unknown", "", err)
	if err != nil {
		return calmInterval
	}
	frozen := d.isFrozen()
	// What sandboxes wrote and the kernel has yet to bring to their images
	// takes space too: freezing writes it out.
	free := s.Free - d.unwritten(s.Free)
	switch {
	case frozen && s.Free >= d.cfg.Reserve/4*3:
		d.relieve()
		d.cfg.Log.Info("disks thawed: the host has space again", "free", s.Free)
		d.cfg.OnPressure(false, s.Free)
	case frozen || free < d.cfg.Reserve/2:
		d.mu.Lock()
		d.frozen = true
		d.mu.Unlock()
		n := d.freezeAll()
		if !frozen {
			d.cfg.Log.Warn("disks frozen: the host is nearly full", "free", s.Free, "disks", n)
			d.cfg.OnPressure(true, s.Free)
		}
		return tenseInterval
	}
	return pause(free - d.cfg.Reserve/2)
}

// unwritten bounds from above how much the host's free space will shrink by
// what is written already: by what the kernel holds back in all, and by what
// the disks use inside and do not take on the host yet. It is 0 when that
// cannot matter.
func (d *Disks) unwritten(free int64) int64 {
	var dirty int64
	if m, err := meminfo.Read(); err == nil {
		dirty = m.Unwritten
	}
	if free-dirty >= d.cfg.Reserve/2 {
		return dirty
	}
	uids, err := d.List()
	if err != nil {
		return dirty
	}
	var sum int64
	for _, uid := range uids {
		if sum >= dirty {
			return dirty
		}
		var st unix.Statfs_t
		if !mounted(d.dir(uid)) || unix.Statfs(d.mnt(uid), &st) != nil {
			continue
		}
		// statfs leaves ext4's own tables and journal out, the image has them.
		used := int64(st.Blocks-st.Bfree)*st.Bsize + (journalMiB(d.bytes(uid))+8)<<20
		sum += max(0, used-allocated(d.dir(uid)))
	}
	return min(dirty, sum)
}

// maxFreezes is large: a freeze stops the writers of its disk at once and then
// takes as long as writing out takes.
const maxFreezes = 256

// freezeAll freezes the mounted disks that are not frozen yet and returns how
// many it froze.
func (d *Disks) freezeAll() int {
	uids, err := d.List()
	d.troubles.Note("disks cannot be frozen", "", err)
	if err != nil {
		return 0
	}
	var (
		wg   sync.WaitGroup
		n    int
		mu   sync.Mutex
		slot = make(chan struct{}, maxFreezes)
	)
	for _, uid := range uids {
		d.mu.Lock()
		// What cannot be written to needs no freeze.
		_, faulty := d.faults[uid]
		done := d.frozenAt[uid] || d.severed[uid] || faulty
		d.mu.Unlock()
		if done || !mounted(d.dir(uid)) {
			continue
		}
		slot <- struct{}{}
		wg.Go(func() {
			defer func() { <-slot }()
			err := d.freeze(uid)
			d.troubles.Note("a disk cannot be frozen", string(uid), err)
			if err != nil {
				return
			}
			mu.Lock()
			n++
			mu.Unlock()
		})
	}
	wg.Wait()
	return n
}

// freeze holds all writers of a disk. It takes the disk's turn, so that no
// unmount passes between.
func (d *Disks) freeze(uid sandbox.UID) error {
	defer d.locks.Wait(string(uid))()
	d.mu.Lock()
	severed := d.severed[uid]
	d.mu.Unlock()
	if severed || !mounted(d.dir(uid)) {
		return nil
	}
	// Known before it is done: a thaw that is not needed does no harm.
	d.mu.Lock()
	d.frozenAt[uid] = true
	d.mu.Unlock()
	err := freezeDir(d.mnt(uid))
	if errors.Is(err, unix.EBUSY) {
		return nil // frozen already
	}
	if err != nil {
		d.mu.Lock()
		delete(d.frozenAt, uid)
		d.mu.Unlock()
	}
	return err
}

// relieve thaws everything.
func (d *Disks) relieve() {
	d.mu.Lock()
	d.frozen = false
	uids := make([]sandbox.UID, 0, len(d.frozenAt))
	for uid := range d.frozenAt {
		uids = append(uids, uid)
	}
	clear(d.frozenAt)
	d.mu.Unlock()
	for _, uid := range uids {
		d.thaw(uid)
	}
}

// thaw lets the writers of a disk go on. Thawing one that is not frozen does
// nothing; one that is being copied thaws when that is done.
func (d *Disks) thaw(uid sandbox.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.copying[uid] && mounted(d.dir(uid)) {
		thawDir(d.mnt(uid))
	}
}

// Requests of <linux/fs.h> and ext4 that golang.org/x/sys does not name.
const (
	fiFreeze     = 0xC0045877
	fiThaw       = 0xC0045878
	ext4Shutdown = 0x8004587D

	// Neither data nor journal are written out.
	ext4NoLogFlush = 2
)

func freezeDir(mnt string) error { return fsRequest(mnt, fiFreeze, 0) }

// thawDir ignores errors: there is nobody who could do more about them, and
// "was not frozen" is the common one.
func thawDir(mnt string) { _ = fsRequest(mnt, fiThaw, 0) }

// shutDown makes every further operation on a file system fail. What it cannot
// shut down goes away a little later.
func shutDown(mnt string) { _ = fsRequest(mnt, ext4Shutdown, ext4NoLogFlush) }

func fsRequest(mnt string, request uint, value int) error {
	f, err := openMount(mnt)
	if err != nil {
		return err
	}
	defer f.Close()
	return mountRequest(f, request, value)
}

func openMount(mnt string) (*os.File, error) {
	return os.OpenFile(mnt, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

func mountRequest(f *os.File, request uint, value int) error {
	return unix.IoctlSetPointerInt(int(f.Fd()), request, value)
}
