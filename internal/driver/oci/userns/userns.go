// Package userns makes the user namespaces of containers, ahead of the containers that
// want them, and knows which sandbox has which range of the host's ids.
package userns

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver/oci/idrange"
	"github.com/cubbyhq/cubby/internal/driver/oci/spare"
	"github.com/cubbyhq/cubby/internal/driver/oci/thread"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Range is a user namespace that maps a container's ids 0… to Base….
type Range struct {
	Base uint32
	File *os.File
}

// Namespaces makes user namespaces ahead of the containers that want them: a
// namespace needs a process to be born in, which takes longer than a container
// should wait.
type Namespaces struct {
	ranges *idrange.Ranges
	spares *spare.Spares[Range]

	mu      sync.Mutex
	held    map[sandbox.UID]Range  // of created containers that did not start yet; guarded by mu
	running map[sandbox.UID]uint32 // ranges of those that did; guarded by mu
}

// New keeps so many namespaces ahead, whose ranges it closes with itself. One that was
// taken is replaced after a while.
func New(ranges *idrange.Ranges, ahead int, refillAfter time.Duration) *Namespaces {
	s := &Namespaces{ranges: ranges, held: make(map[sandbox.UID]Range), running: make(map[sandbox.UID]uint32)}
	s.spares = spare.New(ahead, refillAfter, s.newRange, s.Discard)
	return s
}

// Fresh returns a namespace with a range of its own. The caller closes it.
func (s *Namespaces) Fresh() (Range, error) { return s.spares.Take() }

// Keep holds a namespace for the first start of a sandbox.
func (s *Namespaces) Keep(uid sandbox.UID, r Range) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[uid] = r
}

// Take returns the namespace of a sandbox's next run, which owns its range until
// [Namespaces.Ended]. The caller closes its file.
func (s *Namespaces) Take(uid sandbox.UID) (Range, error) {
	s.mu.Lock()
	r, ok := s.held[uid]
	delete(s.held, uid)
	s.mu.Unlock()
	if !ok {
		var err error
		if r, err = s.Fresh(); err != nil {
			return r, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[uid] = r.Base
	return r, nil
}

// Adopt notes the range of a run that an earlier daemon started. False when
// somebody else uses it too.
func (s *Namespaces) Adopt(uid sandbox.UID, base uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[uid] == base {
		return true
	}
	if !s.ranges.Adopt(base) {
		return false
	}
	s.running[uid] = base
	return true
}

// Ended gives the range of a run back, of which no process is left.
func (s *Namespaces) Ended(uid sandbox.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if base, ok := s.running[uid]; ok {
		s.ranges.Release(base)
		delete(s.running, uid)
	}
}

// Drop forgets what is held for a sandbox.
func (s *Namespaces) Drop(uid sandbox.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.held[uid]; ok {
		s.Discard(r)
		delete(s.held, uid)
	}
}

// Discard gives back a namespace that nothing was started in.
func (s *Namespaces) Discard(r Range) {
	_ = r.File.Close()
	s.ranges.Release(r.Base)
}

// Close ends what no container has.
func (s *Namespaces) Close() {
	s.mu.Lock()
	for uid, r := range s.held {
		s.Discard(r)
		delete(s.held, uid)
	}
	s.mu.Unlock()
	s.spares.Close()
	s.ranges.Close()
}

func (s *Namespaces) newRange() (Range, error) {
	base, err := s.ranges.Claim()
	if err != nil {
		return Range{}, err
	}
	file, err := userNamespace(base)
	if err != nil {
		s.ranges.Release(base)
	}
	return Range{Base: base, File: file}, err
}

// userNamespace returns a namespace that maps ids 0… to base…. It belongs to
// the user base: what the kernel counts per user (signals that wait, message
// queues, inotify instances, locked memory) it counts for the owner of the
// namespace too, which with root would be all containers and the host's root
// together. Where base cannot bear one, as when only root may run this
// program, it is root's all the same.
func userNamespace(base uint32) (ns *os.File, err error) {
	t := thread.New()
	defer t.End()
	err = t.Do(func() error {
		if err := become(base); err != nil {
			return fmt.Errorf("become the owner of a user namespace: %w", err)
		}
		ns, err = bearNamespace(base)
		return err
	})
	if err != nil {
		return bearNamespace(base)
	}
	return ns, nil
}

// become gives the calling thread other user ids for good, and leaves it its
// capabilities.
func become(uid uint32) error {
	const keepThem = 1 << 2 // SECBIT_NO_SETUID_FIXUP
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, keepThem, 0, 0, 0); err != nil {
		return err
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
		return errno
	}
	return nil
}

func bearNamespace(base uint32) (*os.File, error) {
	mapping := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(base), Size: idrange.Count}}
	// A namespace needs a process to be born in. With ptrace it stops before
	// its first instruction and never runs.
	p, err := os.StartProcess("/proc/self/exe", []string{"cubby-userns"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: mapping,
		GidMappings: mapping,
		// The agent gives commands their groups.
		GidMappingsEnableSetgroups: true,
		Ptrace:                     true,
		Pdeathsig:                  syscall.SIGKILL,
	}})
	if err != nil {
		return nil, fmt.Errorf("make user namespace: %w", err)
	}
	ns, err := os.Open("/proc/" + strconv.Itoa(p.Pid) + "/ns/user")
	_ = p.Kill()
	_, _ = p.Wait()
	return ns, err
}

// MapsIDs reports whether this kernel can map the ids of all these filesystems
// in a mount.
func MapsIDs(userns *os.File, paths ...string) bool {
	for _, path := range paths {
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return false
		}
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns.Fd())}
		err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr)
		_ = unix.Close(fd)
		if err != nil {
			return false
		}
	}
	return true
}
