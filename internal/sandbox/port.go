package sandbox

// Port is a TCP port of a sandbox that something listens on, or that its spec
// declares.
type Port struct {
	Port int
	// Listening: something accepts connections on loopback now.
	Listening bool
	// Declared: the spec's ports have it.
	Declared bool
	// Program is the name of a process that listens, and PID its id inside the
	// sandbox; "" and 0 when that cannot be told.
	Program string
	PID     int64
}
