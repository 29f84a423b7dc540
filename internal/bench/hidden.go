package bench

import (
	"fmt"
	goruntime "runtime"

	"golang.org/x/sys/unix"
)

// unified is version 2 of the cgroups on a hybrid machine.
const unified = "/sys/fs/cgroup/unified"

// hidden is an operating-system thread in a mount namespace without the
// unified cgroups. Processes that it starts live there.
type hidden struct {
	calls chan func()
}

func hideUnified() (*hidden, error) {
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

// do calls fn on the thread.
func (h *hidden) do(fn func() error) error {
	done := make(chan error, 1)
	h.calls <- func() { done <- fn() }
	return <-done
}

func (h *hidden) close() { close(h.calls) }
