// Package idrange gives ranges of the host's user and group ids to containers. It knows
// no container: whoever got a range says when it is free again.
package idrange

import (
	"bufio"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver/oci/procstat"
	"github.com/cubbyhq/cubby/internal/errs"
)

// Count is how many ids a container with a user namespace has.
const Count = 1 << 16

// Area are the ids from first up to end. The end may be beyond the last id
// that there is.
type Area struct{ First, End uint64 }

// areas, of whole ranges, lie above everything that people and distributions use. The first is
// what systemd leaves unused too; the second, which systemd-nspawn shares, is
// for hosts with more containers than that.
var areas = []Area{{0x7000_0000, 0x7ffe_0000}, {0x2000_0000, 0x7000_0000}}

// Locks is where the daemons of a host agree on ranges: each locks the byte of
// a range that it uses. The kernel drops a lock with the daemon that had it; the
// ranges of its sandboxes that go on are seen by the processes in them.
const Locks = "/run/cubby/ids.lock"

// Ranges gives ranges of the host's ids to containers, and none of them twice:
// not to two sandboxes of this host, nor one that another program was given
// (/etc/subuid) or runs processes in.
type Ranges struct {
	areas    []Area
	reserved []string // files like /etc/subuid
	proc     string

	mu    sync.Mutex
	used  map[uint32]bool // guarded by mu
	locks *os.File        // nil where no such file can be made; guarded by mu
}

// Open returns the ranges of a host, or those of certain areas, whatever is reserved.
func Open(lockFile string, only ...Area) *Ranges {
	r := &Ranges{areas: only, proc: "/proc", used: make(map[uint32]bool)}
	if len(only) == 0 {
		r.areas, r.reserved = areas, []string{"/etc/subuid", "/etc/subgid"}
	}
	if err := os.MkdirAll(filepath.Dir(lockFile), 0o700); err == nil {
		r.locks, _ = os.OpenFile(lockFile, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	}
	return r
}

// Claim returns the first id of a range that nobody uses. The caller gives it
// back with Release.
func (r *Ranges) Claim() (uint32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.occupied()
	reserved := r.subordinate()
	// A host on which everything is reserved has reserved it for root's
	// containers; then what runs is all that matters.
	for _, respect := range []bool{true, false} {
		for _, a := range r.areas {
			n := (a.End - a.First) / Count
			start := rand.Uint64N(n)
			for i := range n {
				base := uint32(a.First + (start+i)%n*Count)
				if taken[base] || respect && overlaps(reserved, base) {
					continue
				}
				if r.hold(base) {
					return base, nil
				}
			}
		}
	}
	return 0, errs.E(errs.Exhausted, "the host has no range of user ids that is free")
}

// Adopt claims the range of a container that an earlier daemon started. False
// when somebody else uses it.
func (r *Ranges) Adopt(base uint32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hold(base)
}

func (r *Ranges) hold(base uint32) bool {
	if r.used[base] || !r.lock(base, unix.F_WRLCK) {
		return false
	}
	r.used[base] = true
	return true
}

// Release gives a range back. One that is not claimed is left alone.
func (r *Ranges) Release(base uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used[base] {
		delete(r.used, base)
		r.lock(base, unix.F_UNLCK)
	}
}

// Close leaves all ranges to the next daemon.
func (r *Ranges) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.used)
	if r.locks != nil {
		_ = r.locks.Close()
		r.locks = nil
	}
}

// lock reports false when another daemon has the range.
func (r *Ranges) lock(base uint32, kind int16) bool {
	if r.locks == nil {
		return true
	}
	err := unix.FcntlFlock(r.locks.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: kind, Start: int64(base / Count), Len: 1})
	return !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EACCES)
}

// occupied are the ranges that processes of the host run in, this daemon's
// sandboxes or not: one belongs to its user id, or to root of its user
// namespace.
func (r *Ranges) occupied() map[uint32]bool {
	taken := make(map[uint32]bool)
	entries, err := os.ReadDir(r.proc)
	if err != nil {
		return taken
	}
	for _, e := range entries {
		if name := e.Name(); name[0] < '0' || name[0] > '9' {
			continue
		}
		dir := filepath.Join(r.proc, e.Name())
		var st unix.Stat_t
		if unix.Lstat(dir, &st) != nil || st.Uid < Count {
			continue
		}
		if stat, err := os.ReadFile(filepath.Join(dir, "stat")); err == nil && procstat.Lives(procstat.Fields(stat)) {
			taken[st.Uid/Count*Count] = true
		}
	}
	return taken
}

// subordinate reads the ranges that are set aside for users of the host.
func (r *Ranges) subordinate() (all []Area) {
	for _, path := range r.reserved {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			fields := strings.Split(lines.Text(), ":")
			if len(fields) != 3 {
				continue
			}
			first, err1 := strconv.ParseUint(fields[1], 10, 32)
			count, err2 := strconv.ParseUint(fields[2], 10, 32)
			if err1 == nil && err2 == nil {
				all = append(all, Area{first, first + count})
			}
		}
		_ = f.Close()
	}
	return all
}

func overlaps(areas []Area, base uint32) bool {
	for _, a := range areas {
		if a.First < uint64(base)+Count && a.End > uint64(base) {
			return true
		}
	}
	return false
}
