package main

import (
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	sentrytime "gvisor.dev/gvisor/pkg/sentry/time"
)

// looks counts how often a kernel's clock looks at the host's.
type looks struct{ atomic.Int32 }

func (l *looks) Update(bool) (r sentrytime.UpdateResult) { l.Add(1); return r }
func (*looks) GetTime(sentrytime.ClockID) (int64, error) { return 1, nil }
func (*looks) MonotonicRawEnabled() bool                 { return false }

// TestEarlyLook: of upstream's own clock, which is as this package thinks it is.
func TestEarlyLook(t *testing.T) {
	look, err := earlyLook()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.MemfdCreate("clock", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := pgalloc.NewMemoryFile(os.NewFile(uintptr(fd), "clock"), pgalloc.MemoryFileOpts{DisableIMAWorkAround: true})
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Destroy()
	page, err := memory.Allocate(uint64(os.Getpagesize()), pgalloc.AllocOpts{})
	if err != nil {
		t.Fatal(err)
	}
	defer memory.DecRef(page)
	var host looks
	clock := kernel.NewTimekeeper()
	clock.SetClocks(&host, kernel.NewVDSOParamPage(memory, page))
	if n := host.Load(); n != 1 {
		t.Fatalf("a new clock has looked %d times, want 1", n)
	}
	look(clock)
	if n := host.Load(); n != 2 {
		t.Errorf("after the early look it has looked %d times, want 2", n)
	}
	clock.Destroy()
	look(clock)
	if n := host.Load(); n != 2 {
		t.Errorf("a clock that has ended has looked %d times, want 2", n)
	}
}

// TestClockCall: a call that upstream names otherwise would hurry nothing.
func TestClockCall(t *testing.T) {
	for _, table := range kernel.SyscallTables() {
		if _, err := table.LookupNo("clock_gettime"); err != nil {
			t.Errorf("%v: %v", table.Arch, err)
		}
	}
}
