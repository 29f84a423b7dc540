package telemetry

// Version is what was built; the linker sets it (see the Makefile).
var Version = "dev"
