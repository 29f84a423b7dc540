package main

import (
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/runsc/boot/filter"
)

// upstreamFilters is where upstream looks for the system call filter of a kernel.
// Its own builds have it filled by a step of theirs, which the Go module leaves
// out; each kernel then spent some 10 ms on a filter that is always the same.
//
//go:linkname upstreamFilters gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var upstreamFilters map[string]precompiledseccomp.Program

// offerFilter has the kernel take its filter from here. One with other options,
// which this is not the filter of, makes its own as before.
func offerFilter() {
	if kernelFilter.Name == "" {
		return // none for this architecture
	}
	filter.ListPrecompiled() // the first look at the list empties it
	upstreamFilters = map[string]precompiledseccomp.Program{kernelFilter.Name: kernelFilter}
}
