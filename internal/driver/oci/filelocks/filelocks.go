// Package filelocks bounds the file locks that sandboxes hold on the host's
// kernel. Each record lock takes some 200 bytes of kernel memory, and mainline
// kernels neither charge them to a cgroup nor limit them: RLIMIT_LOCKS has had
// no effect since Linux 2.4. So the locks of the whole host are watched, which
// costs microseconds, and only when there are many are they counted by sandbox.
// Of a sandbox that holds more than [Most] the processes with the most locks are
// killed, and their locks go with them.
//
// What belongs to an open file (flock, leases) is bounded by the memory of open
// files, which cgroups charge. Locks of open file descriptions (F_OFD_SETLK) are
// the filter's to refuse: a file that is on its way through a socket would hide
// them.
package filelocks

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Most is how many record locks one sandbox may hold: some 3 MiB of the host's
// memory.
const Most = 16384

// interval is the time between two looks at the host's number of locks. A CPU
// makes some 140,000 locks in a second.
const interval = time.Second

// Kill is a process that was killed for the locks of its sandbox.
type Kill struct {
	At      time.Time
	Process string // its name, as the process chose it
	PID     int    // of the host
	Locks   int    // of the whole sandbox at least, when they were counted
	started uint64 // see the function
}

// maxKills bounds the kills that are remembered of each sandbox.
const maxKills = 64

// guarded is a sandbox whose locks are bounded.
type guarded struct {
	procs func() ([]int, error) // the host's ids of its processes
	spare int                   // the agent, which is never killed
	kills []Kill                // guarded by Watch.mu
}

// Watch bounds the locks of sandboxes. Its methods are safe for concurrent use.
type Watch struct {
	log  *slog.Logger
	held func() (int, error) // of the whole host
	most int

	mu      sync.Mutex
	boxes   map[string]*guarded // guarded by mu
	stop    context.CancelFunc  // guarded by mu; nil: it does not run
	watched sync.WaitGroup
}

// New makes a Watch, which begins with the first [Watch.Guard].
func New(log *slog.Logger) *Watch {
	return &Watch{log: log, held: Held, most: Most, boxes: make(map[string]*guarded)}
}

// Guard bounds the locks of a sandbox, whose processes procs lists. The process
// spare is never killed.
func (w *Watch) Guard(name string, spare int, procs func() ([]int, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.boxes[name] = &guarded{procs: procs, spare: spare}
	if w.stop == nil {
		var ctx context.Context
		ctx, w.stop = context.WithCancel(context.Background())
		w.watched.Go(func() { w.run(ctx) })
	}
}

// Forget ends the guard of a sandbox.
func (w *Watch) Forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.boxes, name)
}

// Kills returns the processes of a sandbox that were killed for its locks, the
// oldest first.
func (w *Watch) Kills(name string) []Kill {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g := w.boxes[name]; g != nil {
		return slices.Clone(g.kills)
	}
	return nil
}

// Close ends the watch. The locks of sandboxes are not bounded any more.
func (w *Watch) Close() {
	w.mu.Lock()
	stop := w.stop
	w.mu.Unlock()
	if stop != nil {
		stop()
	}
	w.watched.Wait()
}

func (w *Watch) run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	alarm := w.most
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		n, err := w.held()
		if err != nil {
			w.log.Warn("the host's file locks cannot be counted: those of containers are not bounded", "err", err)
			return
		}
		alarm = next(alarm, n, w.most)
		if n <= alarm {
			continue
		}
		if !w.look(ctx) {
			// The locks are not those of one sandbox: do not look again
			// until there are many more.
			alarm = n + n/2
		}
	}
}

// next lowers an alarm that a look had raised when the number has fallen.
func next(alarm, held, most int) int { return max(most, min(alarm, held+held/2)) }

// look counts the locks of every sandbox, and reports whether any process was killed
// for them and may hold some yet.
func (w *Watch) look(ctx context.Context) (killed bool) {
	w.mu.Lock()
	names := make([]string, 0, len(w.boxes))
	for name := range w.boxes {
		names = append(names, name)
	}
	w.mu.Unlock()
	for _, name := range names {
		w.mu.Lock()
		g := w.boxes[name]
		var before []Kill
		if g != nil {
			before = slices.Clone(g.kills)
		}
		w.mu.Unlock()
		if g == nil {
			continue
		}
		pids, err := g.procs()
		if err != nil {
			w.log.Warn("the processes of a sandbox cannot be listed", "box", name, "err", err)
			continue
		}
		kills, dying := enforce(ctx, pids, g.spare, w.most, before, func(k Kill) bool { return w.kill(g, k) })
		killed = killed || dying || len(kills) > 0
		if len(kills) == 0 {
			continue
		}
		w.log.Warn("processes of a sandbox were killed for its file locks", "box", name, "locks", kills[0].Locks, "processes", len(kills))
	}
	return killed
}

// kill kills a process of a sandbox. Who learns of its end finds it among the kills.
func (w *Watch) kill(g *guarded, k Kill) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	// Its id cannot be a stranger's by now: ids are given out in a circle.
	if unix.Kill(k.PID, unix.SIGKILL) != nil {
		return false
	}
	g.kills = append(g.kills, k)
	g.kills = slices.Clone(g.kills[max(0, len(g.kills)-maxKills):])
	return true
}

// slab is what the kernel shows of the memory that file locks are in. Caches of
// the same size may share it, so that the number is an upper bound.
const slab = "/sys/kernel/slab/file_lock_cache"

// Held is how many file locks the host has at most. It takes microseconds.
func Held() (int, error) { return heldIn(slab, "/proc/locks") }

func heldIn(slab, locks string) (int, error) {
	slabs, err := first(filepath.Join(slab, "slabs"))
	if errors.Is(err, fs.ErrNotExist) {
		// Not every kernel shows its caches.
		return listed(locks, Most+1)
	}
	if err != nil {
		return 0, err
	}
	each, err := first(filepath.Join(slab, "objs_per_slab"))
	return slabs * each, err
}

// first is the first number of a file.
func first(file string) (int, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	word, _, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	return strconv.Atoi(word)
}

// listed counts the lines of a file, but not beyond most. The kernel searches
// the list of locks from its beginning for every page of it, and nobody can
// lock a file meanwhile.
func listed(file string, most int) (n int, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n < most && lines.Scan() {
		n++
	}
	return n, lines.Err()
}

// locksOf counts the record locks that an entry of fdinfo shows, until there are more
// than most.
func locksOf(file string, most int) (n int) {
	f, err := os.Open(file)
	if err != nil {
		return 0 // it was closed meanwhile
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n <= most && lines.Scan() {
		kind, ok := bytes.CutPrefix(lines.Bytes(), []byte("lock:"))
		if ok && (bytes.Contains(kind, []byte("POSIX")) || bytes.Contains(kind, []byte("OFDLCK"))) {
			n++
		}
	}
	return n
}
