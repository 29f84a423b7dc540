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
	// The memory of a killed process comes back this long after its end at the
	// latest, and its end this long after the kill.
	release = 20 * time.Millisecond
	refund  = 500 * time.Millisecond
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
		if used, ok = memoryUsed(); ok && used >= budget && last.paid(r.cfg.Uptime.Now()) {
			last = victim{pid: r.killLargest(used, budget), at: r.cfg.Uptime.Now()}
		}
		timer.Reset(nextLook(budget - used))
	}
}

// victim is the process that was killed last. Its times are of the clock that
// stands still in a sleep.
type victim struct {
	pid      int // 0: none
	at, gone time.Duration
}

// paid reports whether the victim's memory has come back, so that another process
// pays for what is missing now.
func (v *victim) paid(now time.Duration) bool {
	if v.pid == 0 || now-v.at >= refund {
		return true
	}
	if v.gone == 0 {
		if p, ok := readProcess(v.pid); !ok || p.zombie {
			v.gone = now
		}
		return false
	}
	return now-v.gone >= release
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
// that it belongs to and returns its pid, 0 when there is none.
func (r *Runner) killLargest(used, budget int64) int {
	victim, size, all := 0, int64(0), int64(0)
	var name string
	table, _ := processTable() // the largest of those that can be seen
	for pid, p := range table {
		all += p.rss
		if pid != os.Getpid() && !p.zombie && p.rss > size {
			victim, size, name = pid, p.rss, p.name
		}
	}
	if victim == 0 {
		return 0
	}
	page := int64(os.Getpagesize())
	size, all = size*page, all*page
	text := oomText(name, victim, size, used-all, budget)
	if e := r.ownerOf(victim); e != nil {
		e.setOOM(text)
	}
	// The exit tells it to the user; what a guest can cause again and again
	// must not fill the host's log.
	r.cfg.Log.Debug("memory budget reached", "used", used, "budget", budget, "pid", victim, "size", size)
	_ = syscall.Kill(victim, syscall.SIGKILL)
	return victim
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
