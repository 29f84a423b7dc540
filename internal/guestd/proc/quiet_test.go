package proc

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Commands that are forked while signals become quiet, and are hit by them, start
// with the defaults like all others.
func TestQuietSignals(t *testing.T) {
	signals := []syscall.Signal{unix.SIGUSR2, unix.SIGWINCH, 40, 64}
	stop := make(chan struct{})
	var beside sync.WaitGroup
	defer beside.Wait()
	defer close(stop)
	quiet(signals...)
	beside.Go(func() {
		for ; ; time.Sleep(20 * time.Microsecond) {
			select {
			case <-stop:
				return
			default:
				quiet(signals...)
			}
		}
	})
	beside.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				if err := syscall.Kill(os.Getpid(), signals[i%len(signals)]); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	var mask uint64
	for _, sig := range signals {
		mask |= 1 << (sig - 1)
	}
	for range 100 {
		out, err := exec.Command("/bin/cat", "/proc/self/status").Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			name, value, _ := strings.Cut(line, ":")
			switch name {
			case "SigIgn", "SigCgt", "SigBlk":
				if set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64); err != nil || set&mask != 0 {
					t.Fatalf("a command starts with %s, %v", strings.TrimSpace(line), err)
				}
			}
		}
	}
}

// Signals that wait for a thread come all at once. Had each interrupted the one before, 30
// of them would have been more than the signal stack holds, and the end of the agent.
func TestQuietSignalsAtOnce(t *testing.T) {
	var signals []syscall.Signal
	var set unix.Sigset_t
	for sig := syscall.Signal(35); sig <= 64; sig++ {
		signals = append(signals, sig)
		set.Val[0] |= 1 << (sig - 1)
	}
	quiet(signals...)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range 10 {
		if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil); err != nil {
			t.Fatal(err)
		}
		for _, sig := range signals {
			if err := unix.Tgkill(os.Getpid(), unix.Gettid(), sig); err != nil {
				t.Fatal(err)
			}
		}
		if err := unix.PthreadSigmask(unix.SIG_UNBLOCK, &set, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// What is not quiet is the faults of the agent itself, the end of children, and the
// signals of Go's scheduler and of the C library.
func TestUnusedSignals(t *testing.T) {
	kept := map[syscall.Signal]bool{}
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		kept[sig] = true
	}
	for _, sig := range unused() {
		delete(kept, sig)
	}
	for _, sig := range []syscall.Signal{
		unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSYS, unix.SIGSTKFLT, // faults
		unix.SIGCHLD, unix.SIGURG, unix.SIGPROF, unix.SIGKILL, unix.SIGSTOP, 32, 33, 34,
	} {
		if !kept[sig] {
			t.Errorf("signal %d is quiet", sig)
		}
		delete(kept, sig)
	}
	if len(kept) > 0 {
		t.Errorf("not quiet either: %v", kept)
	}
}
