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

// TestSignalsThatWereTakenAhead do nothing, and are forwarded once upstream forwards them.
func TestSignalsThatWereTakenAhead(t *testing.T) {
	defer signal.Reset(forwarded()...)
	takeSignals()
	before := make(chan os.Signal, 1)
	signal.Notify(before, unix.SIGUSR1)
	if err := unix.Kill(os.Getpid(), unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	<-before
	got := make(chan linux.Signal, 10)
	stop := sighandling.StartSignalForwarding(func(s linux.Signal) { got <- s })
	defer stop()
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGUSR2, unix.SIGHUP} {
		if err := unix.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
		select {
		case is := <-got:
			if is != linux.Signal(s) {
				t.Errorf("signal %d was forwarded, want %d", is, s)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("signal %d is not forwarded", s)
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
