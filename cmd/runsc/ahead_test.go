package main

import (
	"os"
	"os/signal"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sighandling"
)

// TestSignalsThatWereTakenAhead do nothing, and those after them are forwarded once upstream
// forwards them.
func TestSignalsThatWereTakenAhead(t *testing.T) {
	defer signal.Reset(forwarded()...)
	takeSignals()
	send := func(s unix.Signal) {
		if err := unix.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []unix.Signal{unix.SIGHUP, unix.SIGUSR1} {
		send(s) // which would end this process
	}
	got := make(chan linux.Signal, 10)
	stop := sighandling.StartSignalForwarding(func(s linux.Signal) { got <- s })
	defer stop()
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGUSR2} {
		send(s)
		late := time.After(10 * time.Second)
		for is := linux.Signal(0); is != linux.Signal(s); {
			select {
			case is = <-got: // one of before too, if Go was late to look
			case <-late:
				t.Fatalf("signal %d is not forwarded", s)
			}
		}
	}
}

// TestSignalsOfGo stay Go's: its scheduler and what children end with are not forwarded.
func TestSignalsOfGo(t *testing.T) {
	for _, s := range []os.Signal{unix.SIGURG, unix.SIGPIPE, unix.SIGCHLD} {
		if slices.Contains(forwarded(), s) {
			t.Errorf("%v is taken", s)
		}
	}
}
