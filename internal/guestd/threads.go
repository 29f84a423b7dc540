package guestd

import (
	"runtime"
	"sync"
)

// warmThreads makes the Go runtime create n threads ahead and keep them. In a
// container the agent shares its limit of processes with the commands, and a
// Go program that cannot create a thread when it needs one dies: after a fork
// bomb there is none to be had.
func warmThreads(n int) {
	var ready, done sync.WaitGroup
	leave := make(chan struct{})
	for range n {
		ready.Add(1)
		done.Go(func() {
			// A locked goroutine has a thread to itself while it waits;
			// unlocked before it ends, the thread goes to the idle list.
			runtime.LockOSThread()
			ready.Done()
			<-leave
			runtime.UnlockOSThread()
		})
	}
	ready.Wait()
	close(leave)
	done.Wait()
}
