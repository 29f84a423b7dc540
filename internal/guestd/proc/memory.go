package proc

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// In gVisor the host's memory limit ends the whole sandbox, so the agent keeps
// a lower budget itself: when the sandbox comes near it, the process that uses
// most is killed, as the kernel of a machine would.

const (
	// fastestGrowth is how fast memory is assumed to be taken at most,
	// bytes per second; it turns what is left into the time to look again.
	fastestGrowth = 4 << 30
	closestLook   = 4 * time.Millisecond
	rarestLook    = 250 * time.Millisecond
	// idleLook: nothing but the agent runs.
	idleLook = time.Second
	// The memory of a killed process comes back late. Until then nobody else pays for
	// it, unless the others have taken so much more.
	refund     = 500 * time.Millisecond
	stillTaken = 16 << 20
	// watched is among how many processes it is looked for that: to read all of a
	// fork storm again and again takes the processor that ends it.
	watched = 64
)

// WatchMemory keeps the budget until ctx ends.
func (r *Runner) WatchMemory(ctx context.Context, budget int64) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	idle, used := false, int64(0)
	var last victim
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.stirred:
			// A command began; an idle look would come too late for it.
			if idle {
				idle = false
				timer.Reset(nextLook(budget - used))
			}
			continue
		case <-timer.C:
		}
		if idle = !r.anyAlive(); idle {
			timer.Reset(idleLook)
			continue
		}
		var ok bool
		if used, ok = memoryUsed(); ok && used >= budget && last.paid(r.cfg.Uptime.Now(), visible) {
			last = r.killLargest(used, budget)
		}
		timer.Reset(nextLook(budget - used))
	}
}

// victim is the process that was killed last.
type victim struct {
	pid    int           // 0: none
	at     time.Duration // when, by the clock that stands still in a sleep
	others int64         // what all other processes had, in bytes
	among  int           // how many processes there were
}

// paid reports whether another process pays for what is missing now: the victim's
// memory should have come back, or the others go on taking. It looks at the
// processes if it has to.
func (v victim) paid(now time.Duration, look func() map[int]processInfo) bool {
	return v.pid == 0 || now-v.at >= refund || v.among <= watched && residentBeside(look(), v.pid) >= v.others+stillTaken
}

// visible are the processes that can be seen.
func visible() map[int]processInfo {
	table, _ := processTable()
	return table
}

// residentBeside is what all processes of a table but one have, in bytes.
func residentBeside(table map[int]processInfo, pid int) (bytes int64) {
	for other, p := range table {
		if other != pid && !p.zombie {
			bytes += p.rss * int64(os.Getpagesize())
		}
	}
	return bytes
}

// nextLook is when memory can be exhausted at the earliest.
func nextLook(left int64) time.Duration {
	return min(max(time.Duration(float64(left)/fastestGrowth*float64(time.Second)), closestLook), rarestLook)
}

// memoryUsed is what the sandbox uses. In gVisor this asks the host at every call,
// where /proc/meminfo has what was found some time ago: its next scan comes eight
// times as long after the last as that took, which on a busy host are hundreds of
// milliseconds (UpdateUsage of its package pgalloc).
func memoryUsed() (int64, bool) {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil || info.Totalram < info.Freeram {
		return 0, false
	}
	return int64(info.Totalram-info.Freeram) * int64(info.Unit), true
}

// killLargest kills the process that uses most memory, notes it with the exec
// that it belongs to and returns it; none when there is none.
func (r *Runner) killLargest(used, budget int64) victim {
	pid, size, all := 0, int64(0), int64(0)
	var name string
	table := visible()
	for other, p := range table {
		all += p.rss
		if other != os.Getpid() && !p.zombie && p.rss > size {
			pid, size, name = other, p.rss, p.name
		}
	}
	if pid == 0 {
		return victim{}
	}
	page := int64(os.Getpagesize())
	size, all = size*page, all*page
	// What is used beyond the limit cannot be seen, so it says too little.
	nobodys := max(used-all, inFiles(string(readBounded("/proc/meminfo", 8192))))
	text := oomText(name, pid, size, nobodys, budget)
	if e := r.ownerOf(pid); e != nil {
		e.setOOM(text)
	}
	// The exit tells it to the user; what a guest can cause again and again
	// must not fill the host's log.
	r.cfg.Log.Debug("memory budget reached", "used", used, "budget", budget, "pid", pid, "size", size)
	_ = syscall.Kill(pid, syscall.SIGKILL)
	return victim{pid: pid, at: r.cfg.Uptime.Now(), others: residentBeside(table, pid), among: len(table)}
}

// inFiles reads in /proc/meminfo how much of memory is files in it; 0: not known.
func inFiles(meminfo string) int64 {
	for line := range strings.Lines(meminfo) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Shmem:" {
			kib, _ := strconv.ParseInt(f[1], 10, 53)
			return kib << 10
		}
	}
	return 0
}

// oomText says who was killed, and why it was hit although it used little:
// files in /dev/shm, pipes and sockets belong to nobody who could be killed.
func oomText(name string, pid int, size, nobodys, budget int64) string {
	text := fmt.Sprintf("out of memory: %s (pid %d) was killed while it used %d MiB; the sandbox's limit is %d MiB",
		name, pid, size>>20, budget>>20)
	if nobodys > budget/4 {
		text += fmt.Sprintf(", and %d MiB of it belong to no process: files in memory as in /dev/shm, pipes, sockets", nobodys>>20)
	}
	return text
}

// oomCounter counts the kernel's out-of-memory kills as far as they can be
// seen from here: those of the sandbox's own cgroup.
type oomCounter struct{ path string }

// newOOMCounter looks for the counter once; without one it stays at 0.
func newOOMCounter() oomCounter {
	for _, path := range []string{
		"/sys/fs/cgroup/memory.events",
		"/sys/fs/cgroup/memory/memory.oom_control",
	} {
		if _, ok := parseOOMKills(string(readBounded(path, 8192))); ok {
			return oomCounter{path}
		}
	}
	return oomCounter{}
}

func (c oomCounter) count() int64 {
	if c.path == "" {
		return 0
	}
	n, _ := parseOOMKills(string(readBounded(c.path, 8192)))
	return n
}

func parseOOMKills(text string) (int64, bool) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "oom_kill" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
