package oci

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

// idCount is how many ids a container with a user namespace has.
const idCount = 1 << 16

// idArea are the ids from first up to end. The end may be beyond the last id
// that there is.
type idArea struct{ first, end uint64 }

// idAreas, of whole ranges, lie above everything that people and distributions use. The first is
// what systemd leaves unused too; the second, which systemd-nspawn shares, is
// for hosts with more containers than that.
var idAreas = []idArea{{0x7000_0000, 0x7ffe_0000}, {0x2000_0000, 0x7000_0000}}

// idLocks is where the daemons of a host agree on ranges: each locks the byte of
// a range that it uses. The kernel drops a lock with the daemon that had it; the
// ranges of its sandboxes that go on are seen by the processes in them.
const idLocks = "/run/cubby/ids.lock"

// idRanges gives ranges of the host's ids to containers, and none of them twice:
// not to two sandboxes of this host, nor one that another program was given
// (/etc/subuid) or runs processes in.
type idRanges struct {
	areas    []idArea
	reserved []string // files like /etc/subuid
	proc     string

	mu    sync.Mutex
	used  map[uint32]bool // guarded by mu
	locks *os.File        // nil where no such file can be made; guarded by mu
}

func openIDRanges(lockFile string) *idRanges {
	r := &idRanges{
		areas: idAreas, reserved: []string{"/etc/subuid", "/etc/subgid"}, proc: "/proc",
		used: make(map[uint32]bool),
	}
	if err := os.MkdirAll(filepath.Dir(lockFile), 0o700); err == nil {
		r.locks, _ = os.OpenFile(lockFile, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	}
	return r
}

// claim returns the first id of a range that nobody uses. The caller gives it
// back with release.
func (r *idRanges) claim() (uint32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.occupied()
	reserved := r.subordinate()
	// A host on which everything is reserved has reserved it for root's
	// containers; then what runs is all that matters.
	for _, respect := range []bool{true, false} {
		for _, a := range r.areas {
			n := (a.end - a.first) / idCount
			start := rand.Uint64N(n)
			for i := range n {
				base := uint32(a.first + (start+i)%n*idCount)
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

// adopt claims the range of a container that an earlier daemon started. False
// when somebody else uses it.
func (r *idRanges) adopt(base uint32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hold(base)
}

func (r *idRanges) hold(base uint32) bool {
	if r.used[base] || !r.lock(base, unix.F_WRLCK) {
		return false
	}
	r.used[base] = true
	return true
}

// release gives a range back. One that is not claimed is left alone.
func (r *idRanges) release(base uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used[base] {
		delete(r.used, base)
		r.lock(base, unix.F_UNLCK)
	}
}

// close leaves all ranges to the next daemon.
func (r *idRanges) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.used)
	if r.locks != nil {
		_ = r.locks.Close()
		r.locks = nil
	}
}

// lock reports false when another daemon has the range.
func (r *idRanges) lock(base uint32, kind int16) bool {
	if r.locks == nil {
		return true
	}
	err := unix.FcntlFlock(r.locks.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: kind, Start: int64(base / idCount), Len: 1})
	return !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EACCES)
}

// occupied are the ranges that processes of the host run in, this daemon's
// sandboxes or not: one belongs to its user id, or to root of its user
// namespace.
func (r *idRanges) occupied() map[uint32]bool {
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
		if unix.Lstat(dir, &st) != nil || st.Uid < idCount {
			continue
		}
		if stat, err := os.ReadFile(filepath.Join(dir, "stat")); err == nil && procstat.Lives(procstat.Fields(stat)) {
			taken[st.Uid/idCount*idCount] = true
		}
	}
	return taken
}

// subordinate reads the ranges that are set aside for users of the host.
func (r *idRanges) subordinate() (all []idArea) {
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
				all = append(all, idArea{first, first + count})
			}
		}
		_ = f.Close()
	}
	return all
}

func overlaps(areas []idArea, base uint32) bool {
	for _, a := range areas {
		if a.first < uint64(base)+idCount && a.end > uint64(base) {
			return true
		}
	}
	return false
}
