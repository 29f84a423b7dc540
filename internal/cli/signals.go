package cli

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// signalNumber is 0 for no signal.
func signalNumber(sig os.Signal) int {
	if s, ok := sig.(syscall.Signal); ok {
		return int(s)
	}
	return 0
}

// signalName is "SIGINT" for SIGINT.
func signalName(sig os.Signal) string {
	if s, ok := sig.(syscall.Signal); ok {
		if name := unix.SignalName(s); name != "" {
			return name
		}
	}
	return "SIGTERM"
}
