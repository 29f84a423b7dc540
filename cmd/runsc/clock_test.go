package main

import (
	"os"
	"reflect"
	"sync/atomic"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	sentrytime "gvisor.dev/gvisor/pkg/sentry/time"
)

// looks counts how often a kernel's clock looks at the host's.
type looks struct {
	atomic.Int32
	parked atomic.Bool // the last one
}

func (l *looks) Update(parked bool) (r sentrytime.UpdateResult) {
	l.Add(1)
	l.parked.Store(parked)
	return r
}
func (*looks) GetTime(sentrytime.ClockID) (int64, error) { return 1, nil }
func (*looks) MonotonicRawEnabled() bool                 { return false }

// TestEarlyLook: of upstream's own clock, which is as this package thinks it is.
func TestEarlyLook(t *testing.T) {
	look, err := earlyLook()
	if err != nil {
		t.Fatal(err)
	}
	memory := memoryFile(t)
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
	if n := host.Load(); n != 2 || host.parked.Load() {
		t.Errorf("after the early look it has looked %d times, as one that was parked: %v; want 2, false", n, host.parked.Load())
	}
	clock.Destroy()
	look(clock)
	if n := host.Load(); n != 2 {
		t.Errorf("a clock that has ended has looked %d times, want 2", n)
	}
}

// TestClockCall: the call of the tables is replaced, and its own again afterwards.
func TestClockCall(t *testing.T) {
	const name = "clock_gettime"
	of := func(table *kernel.SyscallTable) kernel.SyscallFn {
		number, err := table.LookupNo(name)
		if err != nil {
			t.Fatalf("%v: %v", table.Arch, err)
		}
		return table.Lookup(number)
	}
	upstreams := make(map[*kernel.SyscallTable]kernel.SyscallFn)
	for _, table := range kernel.SyscallTables() {
		upstreams[table] = of(table)
		defer func() {
			number, _ := table.LookupNo(name)
			call := table.Table[number]
			call.Fn = upstreams[table]
			table.Table[number] = call
			table.Init()
		}()
	}
	if err := hurryClock(); err != nil {
		t.Fatal(err)
	}
	for table, upstream := range upstreams {
		if reflect.ValueOf(of(table)).Pointer() == reflect.ValueOf(upstream).Pointer() {
			t.Errorf("%v: the call is upstream's", table.Arch)
		}
	}
}
