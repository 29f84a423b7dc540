package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/storage"
)

// pool holds ready disks: formatted, mounted, and waiting for a name.
type pool struct {
	mu     sync.Mutex
	ready  map[int64][]string // guarded by mu: directories by size
	demand []int64            // guarded by mu: sizes asked for last, newest first
	kick   chan struct{}      // the pool is below its mark
}

const (
	unfinished = ".new-" // begins the names of directories that are being made
	poolSizes  = 2       // how many sizes are kept ready
)

// openPool finds what an earlier daemon left ready and removes what it left
// unfinished.
func (d *Disks) openPool() error {
	p := &d.pool
	p.ready = map[int64][]string{}
	p.kick = make(chan struct{}, 1)
	if d.cfg.PoolBytes >= storage.MinBytes {
		p.demand = []int64{d.cfg.PoolBytes}
	}
	entries, err := os.ReadDir(filepath.Join(d.cfg.Dir, poolName))
	if err != nil {
		return fmt.Errorf("open the pool of disks: %w", err)
	}
	for _, e := range entries {
		dir := filepath.Join(d.cfg.Dir, poolName, e.Name())
		bytes, ok := poolBytes(e.Name())
		// One whose image was removed is mounted still, and keeps nothing.
		if _, err := os.Stat(filepath.Join(dir, imageName)); !ok || err != nil || d.loopErr != nil {
			d.discard(dir)
			continue
		}
		p.ready[bytes] = append(p.ready[bytes], dir)
	}
	return nil
}

// poolBytes reads a size from the name of a ready disk, "<bytes>-<anything>".
func poolBytes(name string) (int64, bool) {
	digits, _, ok := strings.Cut(name, "-")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil && n >= storage.MinBytes
}

// take removes a ready disk of this size from the pool.
func (d *Disks) take(bytes int64) (dir string, ok bool) {
	if d.cfg.Pool <= 0 || d.loopErr != nil {
		return "", false
	}
	p := &d.pool
	p.mu.Lock()
	if len(p.demand) == 0 || p.demand[0] != bytes {
		p.demand = slices.DeleteFunc(p.demand, func(n int64) bool { return n == bytes })
		p.demand = slices.Insert(p.demand, 0, bytes)
		p.demand = p.demand[:min(len(p.demand), poolSizes)]
	}
	// One that is not mounted is left to refill: after a reboot.
	for i, name := range p.ready[bytes] {
		if mounted(name) {
			dir, ok = name, true
			p.ready[bytes] = slices.Delete(p.ready[bytes], i, i+1)
			break
		}
	}
	p.mu.Unlock()
	select {
	case p.kick <- struct{}{}:
	default:
	}
	return dir, ok
}

// refill brings the pool to its mark, one disk at a time, and removes what
// nobody asks for any more.
func (d *Disks) refill(ctx context.Context) error {
	for ctx.Err() == nil {
		bytes, stale := d.poolWork()
		for _, dir := range stale {
			d.discard(dir)
		}
		if bytes == 0 {
			return nil
		}
		if err := d.Admit(); err != nil {
			return err
		}
		dir, err := d.build(ctx, bytes, ownDirs())
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(filepath.Base(dir), unfinished)
		ready := filepath.Join(filepath.Dir(dir), strconv.FormatInt(bytes, 10)+"-"+name)
		if err := os.Rename(dir, ready); err != nil {
			d.discard(dir)
			return fmt.Errorf("add a disk to the pool: %w", err)
		}
		d.pool.mu.Lock()
		d.pool.ready[bytes] = append(d.pool.ready[bytes], ready)
		d.pool.mu.Unlock()
	}
	return ctx.Err()
}

// poolWork says which size is missing (0: none) and takes out of the pool what
// it shall not hold.
func (d *Disks) poolWork() (missing int64, stale []string) {
	p := &d.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	for bytes, dirs := range p.ready {
		keep := 0
		if slices.Contains(p.demand, bytes) || len(p.demand) == 0 {
			keep = d.cfg.Pool
		}
		if len(dirs) > keep {
			stale = append(stale, dirs[keep:]...)
			p.ready[bytes] = dirs[:keep:keep]
		}
	}
	for _, bytes := range p.demand {
		if len(p.ready[bytes]) < d.cfg.Pool {
			return bytes, stale
		}
	}
	return 0, stale
}

// mountPool mounts the ready disks of an earlier daemon.
func (d *Disks) mountPool(ctx context.Context) {
	p := &d.pool
	p.mu.Lock()
	var dirs []string
	for _, ready := range p.ready {
		dirs = append(dirs, ready...)
	}
	p.mu.Unlock()
	for _, dir := range dirs {
		if mounted(dir) || ctx.Err() != nil {
			continue
		}
		// Not in the pool while it is worked on: nobody can take it.
		if !p.remove(dir) {
			continue
		}
		if err := mountImage(ctx, dir); err != nil {
			d.cfg.Log.Warn("a ready disk cannot be mounted and is removed", "err", err)
			d.discard(dir)
			continue
		}
		bytes, _ := poolBytes(filepath.Base(dir))
		p.mu.Lock()
		p.ready[bytes] = append(p.ready[bytes], dir)
		p.mu.Unlock()
	}
}

func (p *pool) remove(dir string) bool {
	bytes, _ := poolBytes(filepath.Base(dir))
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.ready[bytes], dir)
	if i < 0 {
		return false
	}
	p.ready[bytes] = slices.Delete(p.ready[bytes], i, i+1)
	return true
}

// closePool takes the ready disks down; their images stay for the next start.
func (d *Disks) closePool() {
	d.pool.mu.Lock()
	defer d.pool.mu.Unlock()
	for _, dirs := range d.pool.ready {
		for _, dir := range dirs {
			if err := unmountDir(dir); err != nil {
				d.cfg.Log.Warn("a ready disk stays mounted", "err", err)
			}
		}
	}
}

// discard removes a disk that has no name yet.
func (d *Disks) discard(dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), discardTime)
	defer cancel()
	if err := destroyDir(ctx, dir); err != nil {
		d.cfg.Log.Warn("the rest of an unfinished disk stays", "dir", dir, "err", err)
	}
}

// discardTime bounds how long rubbish is worked on.
const discardTime = 10 * time.Second

const (
	refillPause = 10 * time.Second // after an error
	// settleTime is longer than most creates take.
	settleTime = 250 * time.Millisecond
)

// settle waits until the create that took a disk is over: making the next one
// takes the processors and the host's disk away from it. It does not wait while
// a size in demand has no ready disk.
func (d *Disks) settle(ctx context.Context) {
	t := time.NewTimer(settleTime)
	defer t.Stop()
	for !d.pool.dry() {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			return
		case <-d.pool.kick:
			t.Reset(settleTime)
		}
	}
}

// dry says that the next one who asks may find nothing.
func (p *pool) dry() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.demand, func(bytes int64) bool { return len(p.ready[bytes]) == 0 })
}

// keepPool refills the pool whenever it is used, and slowly after an error.
func (d *Disks) keepPool(ctx context.Context) {
	if d.cfg.Pool <= 0 || d.loopErr != nil {
		<-ctx.Done()
		return
	}
	d.mountPool(ctx)
	defer d.closePool()
	for {
		var retry <-chan time.Time
		if err := d.refill(ctx); err != nil && ctx.Err() == nil {
			if errs.KindOf(err) != errs.Exhausted {
				d.cfg.Log.Warn("the pool of disks is not full", "err", err)
			}
			retry = time.After(refillPause)
		}
		select {
		case <-ctx.Done():
			return
		case <-retry:
		case <-d.pool.kick:
			if retry != nil {
				// Creates go on without the pool; do not try for each.
				select {
				case <-ctx.Done():
					return
				case <-retry:
				}
			}
			d.settle(ctx)
		}
	}
}
