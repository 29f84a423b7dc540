package main

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A filter cannot be taken back, so a process of its own gets it.
func TestRefuseCPUIDFaults(t *testing.T) {
	const inside = "CUBBY_TEST_REFUSES_CPUID_FAULTS"
	if os.Getenv(inside) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestRefuseCPUIDFaults$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	ask := make(chan struct{})
	answers := make(chan unix.Errno)
	there := make(chan struct{})
	go func() { // a thread that is there before
		runtime.LockOSThread()
		close(there)
		for range ask {
			_, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, archSetCPUID, cpuidAllowed, 0)
			answers <- errno
		}
	}()
	<-there
	runtime.LockOSThread()
	if err := refuseCPUIDFaults(); err != nil {
		t.Fatal(err)
	}
	ask <- struct{}{}
	if got := <-answers; got != unix.ENODEV {
		t.Errorf("another thread: arch_prctl = %v, want ENODEV", got)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, archSetCPUID, cpuidAllowed, 0); errno != unix.ENODEV {
		t.Errorf("this thread: arch_prctl = %v, want ENODEV", errno)
	}
	var fs uint64
	const archGetFS = 0x1003
	if _, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, archGetFS, uintptr(unsafe.Pointer(&fs)), 0); errno != 0 {
		t.Errorf("arch_prctl(ARCH_GET_FS) = %#x, %v: other uses are refused too", fs, errno)
	}
	if err := leaveCPUID(); err != nil {
		t.Errorf("a second time: %v", err)
	}
}
