package sandbox

import "time"

// SnapshotState is where a snapshot stands.
type SnapshotState string

// Only a ready snapshot can be used. The others are what an act that was cut off
// leaves, for whoever finishes it.
const (
	SnapshotCreating SnapshotState = "creating"
	SnapshotReady    SnapshotState = "ready"
	SnapshotRemoving SnapshotState = "removing"
)

// Snapshot is what was kept of a sandbox: its files, and its memory if that was
// asked for. It outlives the sandbox.
type Snapshot struct {
	// UID is its id, and names its disk and what a driver keeps of it.
	UID       UID
	Name      string // unique among those of its tenant
	Tenant    string // "" is nobody's
	Source    ID     // the sandbox, as it was called
	SourceUID UID
	// Spec is the sandbox's as it was.
	Spec Spec
	// Services are the states of its services, where it has the memory.
	Services    map[string]ServiceState
	ImageDigest string
	// Driver is the one that the sandbox had, which alone can read the memory.
	Driver string
	Memory bool // it has the memory beside the files
	State  SnapshotState
	// DiskBytes and MemoryBytes are what it takes of the host.
	DiskBytes   int64
	MemoryBytes int64
	CreatedAt   time.Time
}

// ValidateSnapshotName checks a name that a snapshot is given. It cannot be taken
// for the id of one.
func ValidateSnapshotName(name string) error {
	if err := ValidateName("name", name); err != nil {
		return err
	}
	if _, err := ParseUID(name); err == nil {
		return invalid("name: it has the form of a snapshot's id").Hint("choose another name")
	}
	return nil
}
