package main

import (
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// A kernel that is made before anybody needs it does then what it would do while
// somebody waits: it takes over the signals and makes address spaces for programs.

// doAhead does so. Call it in a kernel's process that has been made, before its filter of
// system calls is in place.
func doAhead(platformName string) error {
	takeSignals()
	return makeAddressSpaces(platformName)
}

// forwarded are the signals that upstream's kernel forwards to the first process of its
// sandbox (pkg/sighandling).
func forwarded() (signals []os.Signal) {
	for s := unix.Signal(1); s <= 33; s++ {
		switch s {
		case unix.SIGURG, unix.SIGPIPE, unix.SIGCHLD:
		default:
			signals = append(signals, s)
		}
	}
	return signals
}

// takeSignals has this process handle the signals that upstream takes as a sandbox
// begins, and do nothing about them until then. Go takes each of them in another thread
// than the one that asks, and 30 times two switches between threads took some 10 ms.
func takeSignals() {
	nobodys := make(chan os.Signal, 1)
	signal.Notify(nobodys, forwarded()...)
}

// spareAddressSpaces are enough for the agent, its first command, a program that the
// command starts and one more in a memory. Each is a process of the host.
const spareAddressSpaces = 3

// theirPlatform is what the spare address spaces were made by, whose memory they use.
var theirPlatform platform.Platform

// makeAddressSpaces makes address spaces of programs and gives them back. Upstream takes
// those first that were given back, whichever kernel or program they were of. Each takes
// it some 100 switches between processes: 5 to 10 ms.
func makeAddressSpaces(platformName string) error {
	constructor, err := platform.Lookup(platformName)
	if err != nil {
		return err
	}
	if theirPlatform, err = constructor.New(platform.Options{}); err != nil {
		return fmt.Errorf("make platform %s: %w", platformName, err)
	}
	var spaces []platform.AddressSpace
	defer func() {
		for _, s := range spaces {
			s.Release()
		}
	}()
	for range spareAddressSpaces {
		s, err := theirPlatform.NewAddressSpace()
		if err != nil {
			return fmt.Errorf("make address space: %w", err)
		}
		spaces = append(spaces, s)
	}
	return nil
}
