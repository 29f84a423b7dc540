package event

// Start is how a sandbox came to run for the first time.
type Start string

// The starts.
const (
	Warm Start = "warm" // it was kept ready
	Cold Start = "cold"
)
