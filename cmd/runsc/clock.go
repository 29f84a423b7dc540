package main

import (
	"errors"
	"reflect"
	"sync/atomic"
	"time"
	"unsafe"

	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sync"
)

// gVisor's kernel learns how fast the processor counts from two looks at the host's
// clock, a second apart, and until then a program that asks for the time makes a
// system call. In that second a sandbox begins, or wakes, and answers its first
// command, for which its programs ask a thousand times. So the second look comes early
// once. What it is off by, gVisor mends with the looks that follow, as ever.

// secondLook is how long after the first program has asked for the time. Where the host
// tells the time without a system call a look is exact to half a microsecond, and the
// clock off by less than 0.1 ms after a second. Upstream takes looks that are worse, up to
// some 40 µs, which makes 4 ms.
const secondLook = 10 * time.Millisecond

//go:linkname updateClock gvisor.dev/gvisor/pkg/sentry/kernel.(*Timekeeper).update
func updateClock(t *kernel.Timekeeper, parked bool)

// updaterStopped is upstream's state of a clock that nobody updates.
const updaterStopped = 0

// hurryClock has the second look come early. Call it before the kernel runs.
func hurryClock() error {
	look, err := earlyLook()
	if err != nil {
		return err
	}
	var hurried atomic.Pointer[kernel.Timekeeper] // a restored kernel has its own
	wrap := func(do kernel.SyscallFn) kernel.SyscallFn {
		return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
			if clock := t.Kernel().Timekeeper(); hurried.Load() != clock && hurried.Swap(clock) != clock {
				time.AfterFunc(secondLook, func() { look(clock) })
			}
			return do(t, sysno, args)
		}
	}
	return wrapCalls(map[string]wrapper{"clock_gettime": wrap})
}

// earlyLook returns what has a clock look at the host's, unless nobody updates it any
// more. Upstream keeps to itself what that needs: the lock that an update holds, and
// the state that it is about.
func earlyLook() (func(*kernel.Timekeeper), error) {
	fields := reflect.TypeFor[kernel.Timekeeper]()
	lock, hasLock := fields.FieldByName("updateMu")
	state, hasState := fields.FieldByName("updaterState")
	if !hasLock || !hasState || lock.Type != reflect.TypeFor[sync.Mutex]() || state.Type != reflect.TypeFor[atomicbitops.Int32]() {
		return nil, errors.New("upstream's clock is another one")
	}
	return func(clock *kernel.Timekeeper) {
		mu := (*sync.Mutex)(unsafe.Add(unsafe.Pointer(clock), lock.Offset))
		mu.Lock()
		defer mu.Unlock()
		if (*atomicbitops.Int32)(unsafe.Add(unsafe.Pointer(clock), state.Offset)).Load() != updaterStopped {
			updateClock(clock, false)
		}
	}, nil
}
