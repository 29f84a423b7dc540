package filelocks

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver/oci/procstat"
)

// owner is a table of open files, to which record locks belong. Threads share
// one, and so can processes. The id in /proc/locks would not do: it is that of
// the process that took the lock, which may have ended.
type owner struct {
	tasks []int // the threads that have it
	pids  []int // their processes
	locks int
}

// enforce counts the locks of processes. When they are more than most it kills
// those that hold the most of them, until half of that is left; kill reports false when
// there is none any more. Who was killed before takes its locks with it: to give many
// back takes it a while.
//
// To count a million locks takes a second and more, in which a storm goes on: nobody's
// are counted beyond most, which are enough to be killed for.
func enforce(ctx context.Context, pids []int, spare, most int, before []Kill, kill func(Kill) bool) (kills []Kill, dying bool) {
	alive := slices.DeleteFunc(slices.Clone(pids), func(pid int) bool {
		return slices.ContainsFunc(before, func(k Kill) bool { return k.PID == pid && k.started == started(pid) })
	})
	dying = len(alive) < len(pids)
	owners := ownersOf(ctx, alive)
	total := 0
	for _, o := range owners {
		o.count(ctx, most)
		total += o.locks
	}
	if total <= most || ctx.Err() != nil {
		return nil, dying
	}
	slices.SortFunc(owners, func(a, b *owner) int { return cmp.Compare(b.locks, a.locks) })
	left := total
	for _, o := range owners {
		if left <= most/2 {
			break
		}
		left -= o.locks
		for _, pid := range o.pids {
			if pid == spare {
				continue
			}
			name, _ := os.ReadFile(proc(pid, "comm"))
			k := Kill{At: time.Now(), Process: strings.TrimSpace(string(name)), PID: pid, Locks: total, started: started(pid)}
			if kill(k) {
				kills = append(kills, k)
			}
		}
	}
	return kills, dying
}

// started tells a process from another one with its id, in ticks since the host's
// boot; 0: it has ended.
func started(pid int) uint64 {
	stat, err := os.ReadFile(proc(pid, "stat"))
	if err != nil {
		return 0
	}
	since, _ := procstat.StartTime(stat)
	return since
}

func proc(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

// ownersOf finds the tables of open files of processes and of their threads.
func ownersOf(ctx context.Context, pids []int) []*owner {
	var owners []*owner // in the kernel's order
	for _, pid := range pids {
		for _, task := range tasksOf(pid) {
			if ctx.Err() != nil {
				return nil
			}
			owners = place(owners, pid, task)
		}
	}
	return owners
}

// tasksOf lists the threads of a process. A kernel that cannot compare their
// tables is asked for the first one alone.
func tasksOf(pid int) (tasks []int) {
	if !canCompare() {
		return []int{pid}
	}
	entries, _ := os.ReadDir(proc(pid, "task")) // none: it has ended
	for _, entry := range entries {
		if task, err := strconv.Atoi(entry.Name()); err == nil {
			tasks = append(tasks, task)
		}
	}
	return tasks
}

// place adds a thread to the owner whose table it has.
func place(owners []*owner, pid, task int) []*owner {
	if !canCompare() {
		return append(owners, &owner{tasks: []int{task}, pids: []int{pid}})
	}
	for {
		var ended *owner
		at, found := slices.BinarySearchFunc(owners, task, func(o *owner, task int) int {
			order, ok := compare(o.tasks[0], task)
			if !ok {
				ended = o
			}
			return order
		})
		switch {
		case ended == nil && found:
			o := owners[at]
			o.tasks = append(o.tasks, task)
			if !slices.Contains(o.pids, pid) {
				o.pids = append(o.pids, pid)
			}
			return owners
		case ended == nil:
			return slices.Insert(owners, at, &owner{tasks: []int{task}, pids: []int{pid}})
		}
		if _, lives := compare(task, task); !lives {
			return owners
		}
		if ended.tasks = ended.tasks[1:]; len(ended.tasks) == 0 {
			owners = slices.DeleteFunc(owners, func(o *owner) bool { return o == ended })
		}
	}
}

// canCompare reports whether the kernel has kcmp(2).
var canCompare = sync.OnceValue(func() bool {
	_, ok := compare(os.Getpid(), os.Getpid())
	return ok
})

// compare orders two threads by their tables of open files: 0 is the same
// table. It is not ok when one of them has ended.
func compare(a, b int) (order int, ok bool) {
	const files = 2 // KCMP_FILES
	r, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), files, 0, 0, 0)
	switch {
	case errno != 0 || r > 2:
		return 0, false
	case r == 1:
		return -1, true
	case r == 2:
		return 1, true
	}
	return 0, true
}

// count counts the locks of every open file, until there are more than most.
func (o *owner) count(ctx context.Context, most int) {
	for _, task := range o.tasks {
		dir := proc(task, "fdinfo")
		entries, err := os.Open(dir)
		if err != nil {
			continue // it has ended
		}
		for ctx.Err() == nil {
			names, err := entries.Readdirnames(1024)
			for _, name := range names {
				if o.locks > most {
					break
				}
				o.locks += locksOf(filepath.Join(dir, name), most-o.locks)
			}
			if err != nil || o.locks > most {
				break
			}
		}
		_ = entries.Close()
		return
	}
}
