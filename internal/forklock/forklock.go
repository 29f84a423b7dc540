// Package forklock knows of the moment in which a program that this process starts has
// copies of its descriptors: from the fork until it is executed, which on a busy host
// can take a quarter of a second. What is closed meanwhile is open there.
//
// It does not keep programs from being started.
package forklock

import "syscall"

// Wait returns when every program that was being started at the call has been executed,
// except those in a user namespace of their own, for which Go lets others go on. Call
// it between the close of a file that was written and its first execution, which is
// "text file busy" (ETXTBSY) while anybody can write to it.
func Wait() {
	// Go holds it from a fork until the execution (forkExec of package syscall).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
}
