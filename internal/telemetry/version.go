package telemetry

// Version is set by the linker in release builds.
var Version = "dev"
