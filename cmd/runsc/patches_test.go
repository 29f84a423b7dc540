package main

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/usage"
)

// TestProcIsLeftAhead: upstream's command has the patch for it.
func TestProcIsLeftAhead(t *testing.T) {
	if _, ok := any(&new(boot).Boot).(leaver); !ok {
		t.Error("upstream's command cannot leave /proc; see cmd/runsc/patches")
	}
}

// memoryFile is memory of a kernel.
func memoryFile(t *testing.T) *pgalloc.MemoryFile {
	t.Helper()
	f, err := pgalloc.NewMemoryFile(memfd(t, ""), pgalloc.MemoryFileOpts{DisableMemoryAccounting: true})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// pages are a range of memory of a kernel, as it sees them.
func pages(t *testing.T, f *pgalloc.MemoryFile, r memmap.FileRange) []byte {
	t.Helper()
	blocks, err := f.MapInternal(r, hostarch.ReadWrite)
	if err != nil || blocks.NumBlocks() != 1 {
		t.Fatalf("%v is %d blocks, %v, want one", r, blocks.NumBlocks(), err)
	}
	return blocks.Head().ToSlice()
}

// TestASaveLeavesHolesAlone: of memory that was never used a save reads no page, and all
// that was used is there again.
func TestASaveLeavesHolesAlone(t *testing.T) {
	const size, used = 64 << 20, 100
	f := memoryFile(t)
	r, err := f.Allocate(size, pgalloc.AllocOpts{Kind: usage.Anonymous, Mode: pgalloc.AllocateUncommitted})
	if err != nil {
		t.Fatal(err)
	}
	memory := pages(t, f, r)
	memory[0], memory[size-1] = 1, 1
	for i := range used {
		memory[rand.IntN(size)] = byte(i) // the first is zero, and its page is used
	}
	var saved bytes.Buffer
	before := minorFaults(t)
	if err := f.SaveTo(context.Background(), &saved, &pgalloc.SaveOpts{}); err != nil {
		t.Fatal(err)
	}
	if faults := minorFaults(t) - before; faults > size/hostarch.PageSize/10 {
		t.Errorf("a save of %d pages took %d page faults; see cmd/runsc/patches", used, faults)
	}
	if kept, err := f.TotalUsage(); err != nil || kept > 2*used*hostarch.PageSize {
		t.Errorf("after it %d bytes are used, %v, for %d pages", kept, err, used)
	}
	g := memoryFile(t)
	if err := g.LoadFrom(context.Background(), &saved, &pgalloc.LoadOpts{}); err != nil {
		t.Fatal(err)
	}
	if err := g.AwaitLoadAll(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(pages(t, g, r), memory) {
		t.Error("the memory that was read differs")
	}
}

func minorFaults(t *testing.T) int64 {
	t.Helper()
	var use unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &use); err != nil {
		t.Fatal(err)
	}
	return use.Minflt
}
