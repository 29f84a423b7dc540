package forklock

import (
	"syscall"
	"testing"
	"time"
)

func TestWaitForAProgramThatIsBeingStarted(t *testing.T) {
	syscall.ForkLock.Lock()
	waited := make(chan struct{})
	go func() {
		Wait()
		close(waited)
	}()
	select {
	case <-waited:
		t.Error("Wait returned while a program was being started")
	case <-time.After(50 * time.Millisecond):
	}
	syscall.ForkLock.Unlock()
	<-waited
}
