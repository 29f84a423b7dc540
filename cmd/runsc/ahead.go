package main

import (
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/runsc/config"
)

// leaver is upstream's command with the patch proc-ahead.
type leaver interface{ LeaveProc() }

// doAhead does what upstream's kernel does as it begins, when somebody waits for that: it
// gives up /proc, takes over the signals and makes address spaces for programs. Call it in
// the process of a kernel that has been made, before its filter of system calls is in place.
func (b *boot) doAhead(conf *config.Config) error {
	if l, ok := any(&b.Boot).(leaver); ok {
		l.LeaveProc()
	}
	takeSignals()
	return makeAddressSpaces(conf.Platform)
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

// spareAddressSpaces are enough for the agent, its first command, and a program that the
// command starts or a memory brings along. Each is two processes of the host.
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
