// Package admission decides whether one more sandbox may run on this host, and
// which limits a host can give: by counts, by the memory that is available now and
// by the disk's reserve. It goes by what is measured, never by the sum of what
// sandboxes were promised. It starts, stops and stores nothing.
package admission

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
	// CapacityRetry is when one who is refused for want of a place asks again.
	CapacityRetry = 5 * time.Second
	memoryRetry   = 30 * time.Second
	// BootMemory is what a sandbox that is coming up will have taken soon,
	// while the measured free memory does not show it yet.
	BootMemory = 64 << 20
	// poolMemory is what has to be free beside the reserve for one more sandbox
	// that is kept ready.
	poolMemory = 512 << 20
)

// Config says what bounds sandboxes.
type Config struct {
	Caps Caps
	// MemoryReserve is the memory that the host keeps available, in bytes.
	MemoryReserve int64
	// Available measures the host's free memory in bytes; nil: /proc/meminfo.
	Available func() (int64, error)
	// Disks refuses while the host's disk has too little room.
	Disks interface{ Admit() error }
	CPUs  int
}

// Controller counts the sandboxes that run or come up, in all and of each tenant
// and thread. Methods may be called from any goroutine.
type Controller struct {
	caps      Caps
	reserve   int64 // bytes of memory that stay available
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

// New returns a Controller that counts nothing yet.
func New(cfg Config) *Controller {
	a := &Controller{
		caps: cfg.Caps, reserve: cfg.MemoryReserve, available: cfg.Available, disks: cfg.Disks,
		boots: make(chan struct{}, max(4, 2*cfg.CPUs)),
		taken: make(map[sandbox.UID]place), tenants: make(map[string]int), threads: make(map[place]int), grouped: make(map[string]int),
	}
	if a.available == nil {
		a.available = memAvailable
	}
	return a
}

// Take reserves a place for b, waits for its turn to boot and returns the
// function that ends the boot. The place is kept until [Controller.Give]. It is
// errs.Exhausted when there is no room, errs.LowMemory when the memory has none,
// and errs.OverQuota when only its tenant or thread has none, all with RetryAfter.
func (a *Controller) Take(ctx context.Context, b sandbox.Sandbox) (booted func(), err error) {
	unboot, err := a.Reserve(b, BootMemory)
	if err != nil {
		return nil, err
	}
	over, err := a.Turn(ctx)
	if err != nil {
		unboot()
		a.Give(b.UID)
		return nil, err
	}
	return sync.OnceFunc(func() { over(); unboot() }), nil
}

// Turn waits until one more sandbox may boot. The place of the sandbox has been
// reserved.
func (a *Controller) Turn(ctx context.Context) (over func(), err error) {
	select {
	case a.boots <- struct{}{}:
		return sync.OnceFunc(func() { <-a.boots }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TakeRunning is take for a sandbox that runs already and has its memory.
func (a *Controller) TakeRunning(b sandbox.Sandbox) error {
	_, err := a.Reserve(b, 0)
	return err
}

// Reserve is take for a sandbox that waits for its turn by itself. The memory that
// it will have taken soon is counted until booted; 0: it does not boot.
func (a *Controller) Reserve(b sandbox.Sandbox, memory int64) (booted func(), err error) {
	available, err := a.measure()
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.admits(placeOf(b), 0, available, memory); err != nil {
		return nil, err
	}
	a.enter(b.UID, placeOf(b))
	if memory == 0 {
		return func() {}, nil
	}
	a.booting++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.booting--
	}, nil
}

// CheckAll is the error that the last of n sandboxes like b would get, if they all
// booted now, and a sleeper with them, unless that has its place already because it is
// being woken. It reserves nothing.
func (a *Controller) CheckAll(sleeper sandbox.UID, b sandbox.Sandbox, n int) error {
	available, err := a.measure()
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, wakes := a.taken[sleeper]; !wakes {
		n++
	}
	return a.admits(placeOf(b), n-1, available, int64(n)*BootMemory)
}

// measure returns the memory that the host has available, when its disk has room.
func (a *Controller) measure() (available int64, err error) {
	if err := a.disks.Admit(); err != nil {
		return 0, err
	}
	if available, err = a.available(); err != nil {
		return 0, errs.E(errs.Internal, "the host's memory cannot be measured").Because(err)
	}
	return available, nil
}

// admits is nil when one more may run at a place beside those that are counted and
// others there, which all take the memory. The caller holds mu.
func (a *Controller) admits(p place, others int, available, memory int64) error {
	o := a.occupied(p)
	o.all, o.tenant, o.thread, o.threads = o.all+others, o.tenant+others, o.thread+others, o.threads+others
	if err := decideAdmission(a.caps, o); err != nil {
		return err
	}
	if free := available - a.booting*BootMemory; free < a.reserve+memory {
		return errs.E(errs.LowMemory, "the host has too little free memory for another sandbox").
			Hint("idle sandboxes are put to sleep to make room: try again; or stop or destroy one").RetryAfter(memoryRetry)
	}
	return nil
}

// Free is the memory that is left beside what sandboxes that come up will have
// taken soon.
func (a *Controller) Free() (int64, error) {
	available, err := a.available()
	if err != nil {
		return 0, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return available - a.booting*BootMemory, nil
}

// Room is what the host has for sandboxes that nobody asked for: they are made only
// with memory to spare, and given up before a create would be refused.
func (a *Controller) Room() pool.Room {
	free, err := a.Free()
	if err != nil {
		return pool.RoomForThese
	}
	switch free -= a.reserve; {
	case free < 2*BootMemory:
		return pool.NoRoom
	case free < poolMemory:
		return pool.RoomForThese
	}
	return pool.RoomForMore
}

// Check is the error of a take whose turn were now, as far as the bounds go.
func (a *Controller) Check(b sandbox.Sandbox) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return decideAdmission(a.caps, a.occupied(placeOf(b)))
}

// occupied looks from one place. The caller holds mu.
func (a *Controller) occupied(p place) occupancy {
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
		return errs.E(errs.OverQuota, "thread limit reached: %d running sandboxes (max-per-thread)", caps.PerThread).
			Hint("stop or destroy a sandbox of the thread, name another thread, or have the operator raise the limit").
			RetryAfter(CapacityRetry).Because(&sandbox.ThreadFull{Max: caps.PerThread})
	case caps.InThreads > 0 && o.inThread && o.threads >= caps.InThreads:
		return errs.E(errs.OverQuota, "tenant limit reached: %d running sandboxes in threads (max-thread-sandboxes)", caps.InThreads).
			Hint("stop or destroy a sandbox of any thread of the tenant, or have the operator raise the limit").
			RetryAfter(CapacityRetry).Because(&sandbox.ThreadFull{Max: caps.InThreads, All: true})
	case caps.PerTenant > 0 && o.tenant >= caps.PerTenant:
		return errs.E(errs.OverQuota, "tenant limit reached: %d running sandboxes (max-per-tenant)", caps.PerTenant).
			Hint("stop or destroy a sandbox of the tenant, or have the operator raise the limit").RetryAfter(CapacityRetry)
	case caps.All > 0 && o.all >= caps.All:
		return errs.E(errs.Exhausted, "all %d places for running sandboxes are taken", caps.All).
			Hint("stop or destroy a sandbox, or raise max-sandboxes").RetryAfter(CapacityRetry)
	}
	return nil
}

// Adopt counts a sandbox that runs already.
func (a *Controller) Adopt(b sandbox.Sandbox) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.enter(b.UID, placeOf(b))
}

// enter counts a sandbox once. The caller holds mu.
func (a *Controller) enter(uid sandbox.UID, p place) {
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

// Give frees the place of uid, if it has one.
func (a *Controller) Give(uid sandbox.UID) {
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
