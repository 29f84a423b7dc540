package lifecycle

import (
	"context"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/core/pool"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/meminfo"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	capacityRetry = 5 * time.Second
	memoryRetry   = 30 * time.Second
	// bootMemory is what a sandbox that is coming up will have taken soon,
	// while the measured free memory does not show it yet.
	bootMemory = 64 << 20
	// poolMemory is what has to be free beside the reserve for one more sandbox
	// that is kept ready.
	poolMemory = 512 << 20
)

// admission decides whether one more sandbox may run: by how many run, in all
// and of its tenant and thread, by the memory that the host has available now,
// and by the disk's reserve. It goes by what is measured, never by the sum of
// what sandboxes were promised.
type admission struct {
	caps      Caps
	minFree   int64 // bytes of memory that stay available
	available func() (int64, error)
	disks     interface{ Admit() error }
	boots     chan struct{} // bounds how many come up at the same time

	mu      sync.Mutex
	taken   map[sandbox.UID]place // that run or come up; guarded by mu
	tenants map[string]int        // of taken; guarded by mu
	threads map[place]int         // of taken that have a thread; guarded by mu
	grouped map[string]int        // of taken that have a thread, by tenant; guarded by mu
	booting int64                 // of taken; guarded by mu
}

// Caps bound how many sandboxes run at once; 0 is no bound. What is stopped or
// dead does not count.
type Caps struct {
	All       int
	PerTenant int
	// OfTenant counts all that a tenant has, whether it runs or not, and
	// DiskOfTenant the sizes of their disks, kept ones among them.
	OfTenant     int
	DiskOfTenant int64
	Commands     int // commands, cells and terminals of one tenant that run
	PerThread    int // threads of different tenants are different
	InThreads    int // of one tenant's threads together
}

// place is what a running sandbox takes of the bounds.
type place struct{ tenant, thread string }

func placeOf(b sandbox.Sandbox) place { return place{b.Tenant, b.Spec.Thread} }

func newAdmission(settings Settings, disks interface{ Admit() error }) *admission {
	a := &admission{
		caps: settings.Caps, minFree: settings.MemoryReserve, available: settings.MemAvailable, disks: disks,
		boots: make(chan struct{}, max(4, 2*settings.Host.CPUs)),
		taken: make(map[sandbox.UID]place), tenants: make(map[string]int), threads: make(map[place]int), grouped: make(map[string]int),
	}
	if a.available == nil {
		a.available = memAvailable
	}
	return a
}

// take reserves a place for b, waits for its turn to boot and returns the
// function that ends the boot. The place is kept until [admission.give]. It is
// errs.Exhausted when there is no room, errs.LowMemory when the memory has none,
// and errs.OverQuota when only its tenant or thread has none, all with RetryAfter.
func (a *admission) take(ctx context.Context, b sandbox.Sandbox) (booted func(), err error) {
	if err := a.reserve(b.UID, placeOf(b), bootMemory); err != nil {
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
		a.give(b.UID)
		return nil, ctx.Err()
	}
}

// takeRunning is take for a sandbox that runs already and has its memory.
func (a *admission) takeRunning(b sandbox.Sandbox) error { return a.reserve(b.UID, placeOf(b), 0) }

// reserve takes a place for a sandbox that will have taken memory soon; 0: it has
// all that it needs, and does not boot.
func (a *admission) reserve(uid sandbox.UID, p place, memory int64) error {
	if err := a.disks.Admit(); err != nil {
		return err
	}
	available, err := a.available()
	if err != nil {
		return errs.E(errs.Internal, "the host's memory cannot be measured").Because(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := decideAdmission(a.caps, a.occupied(p)); err != nil {
		return err
	}
	if free := available - a.booting*bootMemory; free < a.minFree+memory {
		return errs.E(errs.LowMemory, "the host has too little free memory for another sandbox").
			Hint("idle sandboxes are put to sleep to make room: try again; or stop or destroy one").RetryAfter(memoryRetry)
	}
	a.enter(uid, p)
	if memory > 0 {
		a.booting++
	}
	return nil
}

// free is the memory that is left beside what sandboxes that come up will have
// taken soon.
func (a *admission) free() (int64, error) {
	available, err := a.available()
	if err != nil {
		return 0, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return available - a.booting*bootMemory, nil
}

// room is what the host has for sandboxes that nobody asked for: they are made only
// with memory to spare, and given up before a create would be refused.
func (a *admission) room() pool.Room {
	free, err := a.free()
	switch {
	case err != nil:
		return pool.RoomForThese
	case free < a.minFree+2*bootMemory:
		return pool.NoRoom
	case free < a.minFree+poolMemory:
		return pool.RoomForThese
	}
	return pool.RoomForMore
}

// check is the error of a take whose turn were now, as far as the bounds go.
func (a *admission) check(p place) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return decideAdmission(a.caps, a.occupied(p))
}

// occupied looks from one place. The caller holds mu.
func (a *admission) occupied(p place) occupancy {
	return occupancy{
		all: len(a.taken), tenant: a.tenants[p.tenant], thread: a.threads[p], threads: a.grouped[p.tenant], inThread: p.thread != "",
	}
}

// occupancy is how many run beside the one that asks.
type occupancy struct {
	all, tenant, thread int
	threads             int  // in all threads of the tenant
	inThread            bool // it names a thread
}

// decideAdmission is the rule of the bounds. The caller's own bounds come
// first: they are what the caller can do something about.
func decideAdmission(caps Caps, o occupancy) error {
	switch {
	case caps.PerThread > 0 && o.inThread && o.thread >= caps.PerThread:
		return errs.E(errs.OverQuota, "all %d places for running sandboxes of this thread are taken", caps.PerThread).
			Hint("stop or destroy a sandbox of the thread, or name another thread; the operator's bound is max-per-thread").
			RetryAfter(capacityRetry).Because(&sandbox.ThreadFull{Max: caps.PerThread})
	case caps.InThreads > 0 && o.inThread && o.threads >= caps.InThreads:
		return errs.E(errs.OverQuota, "all %d places for running sandboxes of threads are taken", caps.InThreads).
			Hint("stop or destroy a sandbox of a thread; the operator's bound is max-thread-sandboxes").
			RetryAfter(capacityRetry).Because(&sandbox.ThreadFull{Max: caps.InThreads, All: true})
	case caps.PerTenant > 0 && o.tenant >= caps.PerTenant:
		return errs.E(errs.OverQuota, "all %d places for running sandboxes of this tenant are taken", caps.PerTenant).
			Hint("stop or destroy a sandbox; the operator's bound is max-per-tenant").RetryAfter(capacityRetry)
	case caps.All > 0 && o.all >= caps.All:
		return errs.E(errs.Exhausted, "all %d places for running sandboxes are taken", caps.All).
			Hint("stop or destroy a sandbox, or raise max-sandboxes").RetryAfter(capacityRetry)
	}
	return nil
}

// adopt counts a sandbox that runs already.
func (a *admission) adopt(b sandbox.Sandbox) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.enter(b.UID, placeOf(b))
}

// enter counts a sandbox once. The caller holds mu.
func (a *admission) enter(uid sandbox.UID, p place) {
	if _, counted := a.taken[uid]; counted {
		return
	}
	a.taken[uid] = p
	a.tenants[p.tenant]++
	if p.thread != "" {
		a.threads[p]++
		a.grouped[p.tenant]++
	}
}

// give frees the place of uid, if it has one.
func (a *admission) give(uid sandbox.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, counted := a.taken[uid]
	if !counted {
		return
	}
	delete(a.taken, uid)
	leave(a.tenants, p.tenant)
	if p.thread != "" {
		leave(a.threads, p)
		leave(a.grouped, p.tenant)
	}
}

// leave counts one less and forgets who has none left.
func leave[K comparable](counts map[K]int, k K) {
	if counts[k]--; counts[k] <= 0 {
		delete(counts, k)
	}
}

// memAvailable is the memory that the host has left for programs.
func memAvailable() (int64, error) {
	m, err := meminfo.Read()
	return m.Available, err
}
