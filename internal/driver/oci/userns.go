package oci

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// idCount is how many ids a container with a user namespace has.
const idCount = 1 << 16

// idRange is a user namespace that maps a container's ids 0… to base….
type idRange struct {
	base uint32
	file *os.File
}

// namespaces makes user namespaces ahead of the containers that want them: a
// namespace needs a process to be born in, which takes longer than a container
// should wait.
type namespaces struct {
	making sync.WaitGroup
	ending chan struct{} // closed by close

	mu      sync.Mutex
	spare   []idRange               // guarded by mu
	filling bool                    // somebody fills spare; guarded by mu
	held    map[sandbox.UID]idRange // of created containers that did not start yet; guarded by mu
	closed  bool                    // guarded by mu
}

// fresh returns a namespace with a range of its own. The caller closes it.
func (s *namespaces) fresh() (idRange, error) {
	s.mu.Lock()
	if !s.closed && !s.filling {
		s.filling = true
		s.making.Go(s.refill)
	}
	if n := len(s.spare); n > 0 {
		r := s.spare[n-1]
		s.spare = s.spare[:n-1]
		s.mu.Unlock()
		return r, nil
	}
	s.mu.Unlock()
	return newRange()
}

const (
	spareNamespaces = 4
	// refillAfter is longer than most creates take: the fork copies this
	// process's page tables and makes its next writes slow.
	refillAfter = 250 * time.Millisecond
)

func (s *namespaces) refill() {
	select {
	case <-s.ending:
	case <-time.After(refillAfter):
	}
	for {
		s.mu.Lock()
		if s.closed || len(s.spare) >= spareNamespaces {
			s.filling = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		r, err := newRange()
		s.mu.Lock()
		if err != nil {
			s.filling = false // the next one who asks is told
			s.mu.Unlock()
			return
		}
		s.spare = append(s.spare, r)
		s.mu.Unlock()
	}
}

// keep holds a namespace for the start of a sandbox.
func (s *namespaces) keep(uid sandbox.UID, r idRange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = make(map[sandbox.UID]idRange)
	}
	s.held[uid] = r
}

// take returns the namespace of a sandbox, a fresh one with the same range
// where none is held. The caller closes it.
func (s *namespaces) take(uid sandbox.UID, base uint32) (*os.File, error) {
	s.mu.Lock()
	r, ok := s.held[uid]
	delete(s.held, uid)
	s.mu.Unlock()
	if ok && r.base == base {
		return r.file, nil
	}
	if ok {
		_ = r.file.Close()
	}
	return userNamespace(base)
}

// drop forgets what is held for a sandbox.
func (s *namespaces) drop(uid sandbox.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.held[uid]; ok {
		_ = r.file.Close()
		delete(s.held, uid)
	}
}

func (s *namespaces) close() {
	s.mu.Lock()
	if !s.closed {
		close(s.ending)
	}
	s.closed = true
	for uid, r := range s.held {
		_ = r.file.Close()
		delete(s.held, uid)
	}
	s.mu.Unlock()
	s.making.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.spare {
		_ = r.file.Close()
	}
	s.spare = nil
}

func newRange() (idRange, error) {
	base := idBase(rand.Uint32())
	file, err := userNamespace(base)
	return idRange{base: base, file: file}, err
}

// idBase makes a range of the host's ids from a number: 65536 ids above
// everything that people and distributions use. Two sandboxes that fall on one
// range (a chance of one in 24000) still have separate namespaces of every
// other kind.
func idBase(n uint32) uint32 {
	const first, last = 0x2000_0000, 0x7fff_0000
	return first + n%((last-first)/idCount)*idCount
}

// userNamespace returns a namespace that maps ids 0… to base…, for the
// id-mapped mounts of a container.
func userNamespace(base uint32) (*os.File, error) {
	mapping := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(base), Size: idCount}}
	// A namespace needs a process to be born in. With ptrace it stops before
	// its first instruction and never runs.
	p, err := os.StartProcess("/proc/self/exe", []string{"cubby-userns"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: mapping,
		GidMappings: mapping,
		Ptrace:      true,
		Pdeathsig:   syscall.SIGKILL,
	}})
	if err != nil {
		return nil, fmt.Errorf("make user namespace: %w", err)
	}
	ns, err := os.Open("/proc/" + strconv.Itoa(p.Pid) + "/ns/user")
	_ = p.Kill()
	_, _ = p.Wait()
	return ns, err
}

// mapsIDs reports whether this kernel can map the ids of all these filesystems
// in a mount.
func mapsIDs(userns *os.File, paths ...string) bool {
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
