package main

import (
	"context"
	"runtime"
	"sync"
	_ "unsafe" // for go:linkname

	"github.com/google/subcommands"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/runsc/boot/filter"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/flag"
	gofer "gvisor.dev/gvisor/runsc/fsgofer/filter"
)

// Where upstream looks for the system call filters of a kernel and of a file server.
// Its own builds have them filled by a step of theirs, which the Go module leaves
// out; each process then spent some 10 ms on a filter that is always the same.
//
//go:linkname upstreamFilters gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var upstreamFilters map[string]precompiledseccomp.Program

//go:linkname upstreamGoferFilters gvisor.dev/gvisor/runsc/fsgofer/filter.precompiledPrograms
var upstreamGoferFilters map[string]precompiledseccomp.Program

// offerFilters has a process take its filter from here. One with other options,
// which these are not the filters of, makes its own as before.
func offerFilters() {
	if kernelFilter.Name == "" {
		return // none for this architecture
	}
	// The first look at a list empties it.
	filter.ListPrecompiled()
	gofer.ListPrecompiled()
	upstreamFilters = map[string]precompiledseccomp.Program{kernelFilter.Name: kernelFilter}
	upstreamGoferFilters = map[string]precompiledseccomp.Program{goferFilter.Name: goferFilter}
}

// goferCommand is upstream's command that becomes the file server.
type goferCommand struct{ cmd.Gofer }

// Execute implements subcommands.Command.
func (g *goferCommand) Execute(ctx context.Context, f *flag.FlagSet, args ...any) subcommands.ExitStatus {
	offerFilters()
	// It may be moved to another cgroup, with the same limits, of which Go learns nothing.
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	return g.Gofer.Execute(ctx, f, args...)
}

// tracePoints is done when upstream has made the points at which its kernel can be
// traced, a description of every system call. Nobody traces here, and that took 3 ms
// of each start.
//
//go:linkname tracePoints gvisor.dev/gvisor/pkg/sentry/seccheck.initOnce
var tracePoints sync.Once

func leaveTracePoints() { tracePoints.Do(func() {}) }
