package oci

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// thread is an operating system thread of its own, which ends with it: it may
// be moved to other cgroups and namespaces, processes that it starts begin
// their lives there, and nothing of it is left in this process. That is how a
// runtime gets into cgroups of version 1 and into prepared namespaces without
// a helper program between fork and exec.
type thread struct {
	tid  int
	work chan func()
}

func newThread() *thread {
	t := &thread{work: make(chan func())}
	ready := make(chan struct{})
	go t.run(ready)
	<-ready
	return t
}

func (t *thread) run(ready chan struct{}) {
	runtime.LockOSThread() // and never unlocked: the runtime ends the thread
	if unix.Gettid() == unix.Getpid() {
		// The main thread cannot end, and it stands for the process in
		// /proc. Hold it until another one has taken the work.
		go t.run(ready)
		<-ready
		runtime.UnlockOSThread()
		return
	}
	t.tid = unix.Gettid()
	close(ready)
	for f := range t.work {
		f()
	}
}

// do runs f on the thread.
func (t *thread) do(f func() error) error {
	done := make(chan error, 1)
	t.work <- func() { done <- f() }
	return <-done
}

// end ends the thread.
func (t *thread) end() { close(t.work) }
