package bench

import (
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// unified is version 2 of the cgroups on a hybrid machine.
const unified = "/sys/fs/cgroup/unified"

// hidden is an operating-system thread in a mount namespace without the
// unified cgroups. Processes that it starts live there. It does not have what is
// mounted below the scratch directory either: a disk that this namespace held
// could not be let go of by the daemon, which waits for that.
type hidden struct {
	calls chan func()
}

func hideUnified(scratch string) (*hidden, error) {
	h := &hidden{calls: make(chan func())}
	ready := make(chan error, 1)
	go func() {
		goruntime.LockOSThread() // and never unlocked: the thread ends with its namespace
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "")
		}
		if err == nil {
			err = unix.Unmount(unified, unix.MNT_DETACH)
		}
		if err == nil {
			err = detachBelow(scratch)
		}
		if err != nil {
			ready <- fmt.Errorf("hide %s: %w", unified, err)
			return
		}
		ready <- nil
		for call := range h.calls {
			call()
		}
	}()
	if err := <-ready; err != nil {
		return nil, err
	}
	return h, nil
}

// detachBelow takes every mount below dir out of this thread's namespace.
func detachBelow(dir string) error {
	table, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 5 || !strings.HasPrefix(fields[4], dir+"/") {
			continue
		}
		// One above it may have taken it along.
		if err := unix.Unmount(fields[4], unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// do calls fn on the thread.
func (h *hidden) do(fn func() error) error {
	done := make(chan error, 1)
	h.calls <- func() { done <- fn() }
	return <-done
}

func (h *hidden) close() { close(h.calls) }
