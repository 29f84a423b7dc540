// Package thread gives work an operating system thread of its own.
package thread

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Thread is an operating system thread of its own, which ends with it: it may
// be moved to other cgroups and namespaces, processes that it starts begin
// their lives there, and nothing of it is left in this process. That is how a
// runtime gets into cgroups of version 1 and into prepared namespaces without
// a helper program between fork and exec.
type Thread struct {
	TID  int
	work chan func()
}

// New starts a thread. The caller ends it.
func New() *Thread {
	t := &Thread{work: make(chan func())}
	ready := make(chan struct{})
	go t.run(ready)
	<-ready
	return t
}

func (t *Thread) run(ready chan struct{}) {
	runtime.LockOSThread() // and never unlocked: the runtime ends the thread
	if unix.Gettid() == unix.Getpid() {
		// The main thread cannot end, and it stands for the process in
		// /proc. Hold it until another one has taken the work.
		go t.run(ready)
		<-ready
		runtime.UnlockOSThread()
		return
	}
	t.TID = unix.Gettid()
	close(ready)
	for f := range t.work {
		f()
	}
}

// Do runs f on the thread.
func (t *Thread) Do(f func() error) error {
	done := make(chan error, 1)
	t.work <- func() { done <- f() }
	return <-done
}

// End ends the thread. Nothing is done on it any more.
func (t *Thread) End() { close(t.work) }
