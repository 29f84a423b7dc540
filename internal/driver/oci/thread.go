package oci

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// onThread runs f on an operating system thread of its own, which ends with
// it: f may move the thread to other cgroups and namespaces, processes that it
// starts begin their lives there, and nothing of it is left in this process.
// That is how a runtime gets into cgroups of version 1 and into prepared
// namespaces without a helper program between fork and exec.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the runtime ends the thread
		if unix.Gettid() == unix.Getpid() {
			// The main thread cannot end, and it stands for the process in
			// /proc. Hold it while another one does the work.
			done <- onThread(f)
			runtime.UnlockOSThread()
			return
		}
		done <- f()
	}()
	return <-done
}
