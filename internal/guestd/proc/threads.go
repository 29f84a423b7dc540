package proc

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// warmThreads makes the Go runtime create n threads ahead and keep them. In a
// container the agent shares its limit of processes with the commands, and a
// Go program that cannot create a thread when it needs one dies: after a fork
// bomb there is none to be had.
//
// It goes on until a thread has the id last, or a later one: ids up to it are
// behind the shield, and a command that got one could not be killed by its
// own kind.
func warmThreads(n int, last uint32) {
	var done sync.WaitGroup
	leave := make(chan struct{})
	ids := make(chan uint32)
	reached := last == 0
	for i := 0; i < n || !reached && i < maxWarm; i++ {
		done.Go(func() {
			// A locked goroutine has a thread to itself while it waits;
			// unlocked before it ends, the thread goes to the idle list.
			runtime.LockOSThread()
			ids <- uint32(unix.Gettid())
			<-leave
			runtime.UnlockOSThread()
		})
		reached = <-ids >= last || reached
	}
	close(leave)
	done.Wait()
}

// maxWarm bounds warmThreads where ids do not grow as they should.
const maxWarm = 64
