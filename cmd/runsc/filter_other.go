//go:build !amd64

package main

import "gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"

var kernelFilter, goferFilter precompiledseccomp.Program
