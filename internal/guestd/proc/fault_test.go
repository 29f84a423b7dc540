package proc

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestFaultsOfOthers: a signal that says of itself that it was queued, or comes from a
// timer, a file or a process, is no fault.
func TestFaultsOfOthers(t *testing.T) {
	if err := ownFaults(); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, sig := range append([]syscall.Signal{unix.SIGSTKFLT}, faults...) {
		for _, code := range []int32{0, -1, -2, -3, -4, -5, -6, -60} {
			info := struct {
				signo, errno, code int32
				_                  [116]byte
			}{signo: int32(sig), code: code}
			if _, _, errno := syscall.RawSyscall6(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(os.Getpid()), uintptr(unix.Gettid()), uintptr(sig), uintptr(unsafe.Pointer(&info)), 0, 0); errno != 0 {
				t.Fatalf("%v with the code %d: %v", sig, code, errno)
			}
		}
	}
}

// TestOwnFaults: a fault of the program itself is a panic, as before.
func TestOwnFaults(t *testing.T) {
	if err := ownFaults(); err != nil {
		t.Fatal(err)
	}
	if err := ownFaults(); err != nil {
		t.Fatalf("once more: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a write to nowhere is no panic")
		}
	}()
	var p *int
	*p = 1
}

// TestFaultsInCommands: commands start with the defaults.
func TestFaultsInCommands(t *testing.T) {
	if err := ownFaults(); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("/bin/cat", "/proc/self/status").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(line, ":")
		if name != "SigIgn" && name != "SigCgt" {
			continue
		}
		set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		for _, sig := range append([]syscall.Signal{unix.SIGSTKFLT}, faults...) {
			if err != nil || set&(1<<(sig-1)) != 0 {
				t.Errorf("a command starts with %s, %v: %v", strings.TrimSpace(line), sig, err)
			}
		}
	}
}
