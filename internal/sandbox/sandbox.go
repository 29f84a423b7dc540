// Package sandbox holds cubby's nouns: the sandbox with its [Spec] and
// [State], the [Exec], the [Event], the egress [Policy], and the rules that
// make them valid. It does no I/O, reads no clock and imports nothing but
// errs, so every other package can share it.
package sandbox

import (
	"time"
)

// Isolation is the wall between a sandbox and the host.
type Isolation string

const (
	// GVisor runs the sandbox on its own user-space kernel.
	GVisor Isolation = "gvisor"
	// Container is a hardened OCI container on the host's kernel.
	Container Isolation = "container"
)

// IdlePolicy says what happens to a sandbox that nobody uses.
type IdlePolicy string

const (
	IdleStop     IdlePolicy = "stop"
	IdleDestroy  IdlePolicy = "destroy"
	IdleSleep    IdlePolicy = "sleep"
	IdleAlwaysOn IdlePolicy = "always_on"
)

// AutoWake says which sandboxes run again when somebody uses them. One that
// sleeps does, unless it is [AutoWakeNever]; "" is [AutoWakeIdle].
type AutoWake string

const (
	// AutoWakeIdle leaves a sandbox alone that somebody stopped, or that died.
	AutoWakeIdle   AutoWake = "idle"
	AutoWakeAlways AutoWake = "always"
	AutoWakeNever  AutoWake = "never"
)

// Visibility decides who may open a sandbox's previews.
type Visibility string

const (
	Public  Visibility = "public"
	Private Visibility = "private"
)

// HostHeader is the Host that apps see in requests of previews; "" is
// [HostLocalhost].
type HostHeader string

const (
	HostLocalhost HostHeader = "localhost" // localhost:PORT
	HostPreserve  HostHeader = "preserve"  // the preview's own
)

// The users that commands can run as.
const (
	UserSandbox = "sandbox" // uid and gid 1000, home /home/sandbox
	UserRoot    = "root"
)

// The runtimes that a sandbox can be for.
const (
	RuntimePython = "python"
	RuntimeNode   = "node"
	RuntimeR      = "r"
)

// Paths inside every sandbox.
const (
	WorkspaceDir = "/workspace"
	HomeDir      = "/home/sandbox"
	// Sandboxes with shared files have WorkspaceDir and these from their tenant.
	OutputsDir = "/mnt/user-data/outputs"
	UploadsDir = "/mnt/user-data/uploads" // read-only
	// UserID is the uid and gid of UserSandbox. It needs no passwd entry.
	UserID = 1000
)

// Limits bound what a sandbox can use. Zero means the default when given by a
// caller; a stored sandbox has no zero fields.
type Limits struct {
	MemoryBytes int64   `json:"memory_bytes"`
	CPUs        float64 `json:"cpus"`
	PIDs        int64   `json:"pids"`
	DiskBytes   int64   `json:"disk_bytes"`
	OpenFiles   int64   `json:"open_files"`
}

// Spec is what a caller asks for. It does not change after create except
// through the documented update.
type Spec struct {
	Image string `json:"image"`
	// Runtime is the language that it is for, one of the Runtime constants; ""
	// is none in particular. It decides which image is the default, and what
	// installs packages and runs code that name no other.
	Runtime string `json:"runtime,omitempty"`
	// Dependencies are packages of the runtime by name that were installed when
	// it was made, with the version asked for; "" is any.
	Dependencies map[string]string `json:"dependencies,omitempty"`

	Isolation  Isolation         `json:"isolation"`
	Limits     Limits            `json:"limits"`
	Env        map[string]string `json:"env,omitempty"`
	User       string            `json:"user"`
	Labels     map[string]string `json:"labels,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Ports      []int             `json:"ports,omitempty"`
	Services   []Service         `json:"services,omitempty"`
	Network    Policy            `json:"network"`
	Visibility Visibility        `json:"visibility"`
	HostHeader HostHeader        `json:"host_header,omitempty"`
	// ExecTimeout is the time limit of an exec that names none; 0 is none.
	ExecTimeout time.Duration `json:"exec_timeout"`
	IdlePolicy  IdlePolicy    `json:"idle_policy"`
	IdleTimeout time.Duration `json:"idle_timeout"` // 0: never idle
	AutoWake    AutoWake      `json:"auto_wake,omitempty"`
	// MaxLifetime ends the sandbox that long after its creation, whatever it
	// does; 0 is never.
	MaxLifetime time.Duration `json:"max_lifetime,omitempty"`
	// KeptUntil is a lease: until then nobody's absence ends the sandbox. Zero
	// is none.
	KeptUntil time.Time `json:"kept_until,omitzero"`
	// SharedFiles: it uses the disk of its tenant for WorkspaceDir and
	// /mnt/user-data, beside its own.
	SharedFiles bool `json:"shared_files,omitempty"`
	// Thread groups sandboxes that one bound holds for; "" is no group.
	Thread string `json:"thread,omitempty"`
	// External names the sandbox's owner in the caller's own terms.
	External External `json:"external,omitzero"`
	// GitRemoteURL is where tasks of coding agents are pushed to; "" is nowhere.
	GitRemoteURL string `json:"git_remote_url,omitempty"`
}

// External is a caller's own naming of whom a sandbox belongs to. A disk that
// was kept belongs to it: another UserID may not take it over.
type External struct {
	UserID      string `json:"user_id,omitempty"`
	ProjectID   string `json:"project_id,omitempty"`
	WorkspaceID string `json:"workspace_id,omitempty"`
}

// Sandbox is one sandbox as the store knows it.
type Sandbox struct {
	UID    UID
	ID     ID
	Tenant string // whose it is; "" is nobody's
	Spec   Spec
	State  State
	// Cause says why the sandbox does not run (any more), and Reason says it to
	// people when nobody asked for it: "CONTAINER_DIED: …", "create: …". Safe to
	// show, and not for programs to read.
	Cause  Cause
	Reason string
	// Driver names the driver that runs the sandbox, from its create on: no other
	// can read the handle.
	Driver string
	// Handle is the driver's own note of what runs, stored verbatim. Nil
	// while nothing was made.
	Handle []byte
	// ImageDigest pins the image content that the sandbox was created from.
	ImageDigest string
	// DiskUID keys the sandbox's disk; it differs from UID when a kept disk
	// was taken over.
	DiskUID UID

	CreatedAt    time.Time
	UpdatedAt    time.Time
	StartedAt    time.Time // zero: never ran
	StoppedAt    time.Time // when it came to rest last; zero: never
	LastActiveAt time.Time
	DestroyedAt  time.Time
	// Services is what became of its services since it began cold, by name. The
	// store forgets it when the sandbox stops.
	Services map[string]ServiceState
	// IdleAt is when the idle policy comes into force unless somebody uses the
	// sandbox before. Zero: it does not run, is in use, or never idle. It is
	// not stored.
	IdleAt time.Time
	// Conditions are what keeps it from working as it should. They are not stored.
	Conditions []Condition
	// Warnings say of one that has just begun from a memory what in it draws the
	// random numbers of others of that memory, or lost its state. They are not stored.
	Warnings []string
}

// ConditionType is what a [Condition] is about.
type ConditionType string

const (
	// ConditionDiskFailed: a disk of it is read-only, because writing to the host's
	// disk failed.
	ConditionDiskFailed ConditionType = "disk_failed"
	// ConditionDiskHeld: what writes to its disks waits, because the host's disk is
	// nearly full.
	ConditionDiskHeld ConditionType = "disk_held"
)

// Condition is something that keeps a running sandbox from working as it should.
type Condition struct {
	Type   ConditionType
	Reason string // with what becomes of it, or what to do
}

// Why is why it does not run (any more).
func (b Sandbox) Why() Why { return Why{b.Cause, b.Reason} }

// FilesTenant is the tenant whose disk it uses beside its own; "" is none.
func (b Sandbox) FilesTenant() string {
	if !b.Spec.SharedFiles {
		return ""
	}
	return b.Tenant
}

// Ends is when its lifetime is over; zero is never.
func (b Sandbox) Ends() time.Time {
	if b.Spec.MaxLifetime <= 0 {
		return time.Time{}
	}
	return b.CreatedAt.Add(b.Spec.MaxLifetime)
}
