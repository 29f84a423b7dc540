// Package event names the facts of a sandbox's history and gives each its
// payload type, so that no kind is a free string and no payload can hold an
// env value, a token or file contents. It stores and sends nothing.
package event

import "github.com/cubbyhq/cubby/internal/sandbox"

// The kinds of events.
const (
	SandboxCreated   = "sandbox.created"
	SandboxStarted   = "sandbox.started"
	SandboxUpdated   = "sandbox.updated"
	SandboxStopped   = "sandbox.stopped"
	SandboxFailed    = "sandbox.failed"
	SandboxDied      = "sandbox.died"
	SandboxDestroyed = "sandbox.destroyed"
	SandboxAdopted   = "sandbox.adopted"
	ExecStarted      = "exec.started"
	ExecFinished     = "exec.finished"
	FileWritten      = "file.written"
	FileRemoved      = "file.removed"
	FileMoved        = "file.moved"
	DirMade          = "file.dir_made"
	ArchiveExtracted = "file.extracted"
	EgressAllowed    = "egress.allowed"
	EgressDenied     = "egress.denied"
	DiskFrozen       = "host.disk_frozen"
	DiskThawed       = "host.disk_thawed"
	DiskPurged       = "disk.purged"
)

// Payload is the typed content of one kind of event.
type Payload interface{ kind() string }

// New makes an event; the store sets cursor and, when zero, time.
func New(box sandbox.UID, actor string, p Payload) sandbox.Event {
	return sandbox.Event{Box: box, Actor: actor, Kind: p.kind()}
}

type (
	Created struct {
		ID        sandbox.ID        `json:"id"`
		Image     string            `json:"image"`
		Isolation sandbox.Isolation `json:"isolation"`
	}
	Started struct{}
	Updated struct {
		Fields []string `json:"fields"`
	}
	Stopped struct {
		Reason string `json:"reason,omitempty"`
	}
	Failed struct {
		Reason string `json:"reason"`
	}
	Died struct {
		Reason string `json:"reason"`
	}
	Destroyed struct {
		DiskKept bool `json:"disk_kept"`
	}
	Adopted   struct{}
	ExecStart struct {
		Seq int64 `json:"seq"`
	}
	ExecEnd struct {
		Seq    int64             `json:"seq"`
		Reason sandbox.EndReason `json:"reason"`
		Code   *int              `json:"exit_code"`
	}
	FileWrite struct {
		Path string `json:"path"`
		Size int64  `json:"size"`
	}
	FileRemove struct {
		Path string `json:"path"`
	}
	FileMove struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	MakeDir struct {
		Path string `json:"path"`
	}
	Extract struct {
		Path string `json:"path"`
	}
	Allowed struct {
		Host string `json:"host"`
		Port int    `json:"port"`
		Rule string `json:"rule"`
	}
	Denied struct {
		Host string `json:"host"`
		Port int    `json:"port"`
		Rule string `json:"rule"`
	}
	Frozen struct {
		FreeBytes int64 `json:"free_bytes"`
	}
	Thawed struct {
		FreeBytes int64 `json:"free_bytes"`
	}
	Purged struct {
		FreedBytes int64 `json:"freed_bytes"`
	}
)

func (Created) kind() string    { return SandboxCreated }
func (Started) kind() string    { return SandboxStarted }
func (Updated) kind() string    { return SandboxUpdated }
func (Stopped) kind() string    { return SandboxStopped }
func (Failed) kind() string     { return SandboxFailed }
func (Died) kind() string       { return SandboxDied }
func (Destroyed) kind() string  { return SandboxDestroyed }
func (Adopted) kind() string    { return SandboxAdopted }
func (ExecStart) kind() string  { return ExecStarted }
func (ExecEnd) kind() string    { return ExecFinished }
func (FileWrite) kind() string  { return FileWritten }
func (FileRemove) kind() string { return FileRemoved }
func (FileMove) kind() string   { return FileMoved }
func (MakeDir) kind() string    { return DirMade }
func (Extract) kind() string    { return ArchiveExtracted }
func (Allowed) kind() string    { return EgressAllowed }
func (Denied) kind() string     { return EgressDenied }
func (Frozen) kind() string     { return DiskFrozen }
func (Thawed) kind() string     { return DiskThawed }
func (Purged) kind() string     { return DiskPurged }
