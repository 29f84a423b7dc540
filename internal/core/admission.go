package core

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	capacityRetry = 5 * time.Second
	memoryRetry   = 30 * time.Second
	// bootMemory is what a sandbox that is coming up will have taken soon,
	// while the measured free memory does not show it yet.
	bootMemory = 64 << 20
)

// admission decides whether one more sandbox may run: by how many run, by the
// memory that the host has available now, and by the disk's reserve. It goes
// by what is measured, never by the sum of what sandboxes were promised.
type admission struct {
	max       int   // sandboxes that run at once; 0: no bound
	minFree   int64 // bytes of memory that stay available
	available func() (int64, error)
	disks     interface{ Admit() error }
	boots     chan struct{} // bounds how many come up at the same time

	mu      sync.Mutex
	taken   map[sandbox.UID]struct{} // that run or come up; guarded by mu
	booting int64                    // of taken; guarded by mu
}

// take reserves a place for uid, waits for its turn to boot and returns the
// function that ends the boot. The place is kept until [admission.give]. It is
// errs.Exhausted, with RetryAfter, when there is no room.
func (a *admission) take(ctx context.Context, uid sandbox.UID) (booted func(), err error) {
	if err := a.reserve(uid); err != nil {
		return nil, err
	}
	unboot := func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.booting--
	}
	select {
	case a.boots <- struct{}{}:
		return sync.OnceFunc(func() { <-a.boots; unboot() }), nil
	case <-ctx.Done():
		unboot()
		a.give(uid)
		return nil, ctx.Err()
	}
}

func (a *admission) reserve(uid sandbox.UID) error {
	if err := a.disks.Admit(); err != nil {
		return err
	}
	available, err := a.available()
	if err != nil {
		return errs.E(errs.Internal, "the host's memory cannot be measured").Because(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.max > 0 && len(a.taken) >= a.max {
		return errs.E(errs.Exhausted, "all %d places for running sandboxes are taken", a.max).
			Hint("stop or destroy a sandbox, or raise max-sandboxes").RetryAfter(capacityRetry)
	}
	if free := available - a.booting*bootMemory; free < a.minFree+bootMemory {
		return errs.E(errs.Exhausted, "the host has too little free memory for another sandbox").
			Hint("stop or destroy a sandbox, or try again later").RetryAfter(memoryRetry)
	}
	a.taken[uid] = struct{}{}
	a.booting++
	return nil
}

// adopt counts a sandbox that runs already.
func (a *admission) adopt(uid sandbox.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.taken[uid] = struct{}{}
}

// give frees the place of uid, if it has one.
func (a *admission) give(uid sandbox.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.taken, uid)
}

// readMeminfo returns a field of /proc/meminfo in bytes.
func readMeminfo(field string) (int64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		name, rest, _ := strings.Cut(s.Text(), ":")
		if name != field {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/meminfo: %s: %w", field, err)
		}
		return kb << 10, nil
	}
	if err := s.Err(); err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("/proc/meminfo has no %s", field)
}

func memAvailable() (int64, error) { return readMeminfo("MemAvailable") }
