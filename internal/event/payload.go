package event

import "github.com/cubbyhq/cubby/internal/sandbox"

// The kinds of events.
const (
	SandboxCreated   = "sandbox.created"
	SandboxStarted   = "sandbox.started"
	SandboxUpdated   = "sandbox.updated"
	SandboxSlept     = "sandbox.slept"
	SandboxWoken     = "sandbox.woken"
	SandboxStopped   = "sandbox.stopped"
	SandboxFailed    = "sandbox.failed"
	SandboxDied      = "sandbox.died"
	SandboxDestroyed = "sandbox.destroyed"
	SandboxArchived  = "sandbox.archived"
	ArchiveNotMade   = "sandbox.archive_failed"
	SandboxAdopted   = "sandbox.adopted"
	SandboxKept      = "sandbox.kept"
	SandboxForked    = "sandbox.forked"
	SandboxRolled    = "sandbox.rolled_back"
	SnapshotCreated  = "snapshot.created"
	SnapshotRemoved  = "snapshot.removed"
	ExecQueued       = "exec.queued"
	ExecStarted      = "exec.started"
	ExecFinished     = "exec.finished"
	LimitHit         = "limit.hit"
	FileWritten      = "file.written"
	FileRemoved      = "file.removed"
	FileMoved        = "file.moved"
	DirMade          = "file.dir_made"
	SessionForgotten = "session.forgotten"
	ArchiveExtracted = "file.extracted"
	FileExported     = "file.exported"
	FileImported     = "file.imported"
	EgressAllowed    = "egress.allowed"
	EgressDenied     = "egress.denied"
	EgressUnlisted   = "egress.unlisted"
	EgressLent       = "egress.lent"
	DiskFrozen       = "host.disk_frozen"
	DiskThawed       = "host.disk_thawed"
	DiskPurged       = "disk.purged"
	DiskFailed       = "disk.failed"
	DiskRepaired     = "disk.repaired"
	KernelCreated    = "kernel.created"
	KernelRestarted  = "kernel.restarted"
	KernelDeleted    = "kernel.deleted"
	KernelDied       = "kernel.died"
	ServiceStarted   = "service.started"
	ServiceEnded     = "service.ended"
	ServiceFailed    = "service.failed"
	PortOpened       = "port.opened"
	PortClosed       = "port.closed"
)

// Created: a sandbox exists and runs for the first time.
type Created struct {
	ID        sandbox.ID        `json:"id"`
	Image     string            `json:"image"`
	Isolation sandbox.Isolation `json:"isolation"`
	Start     Start             `json:"start,omitempty"` // "": before this was noted
	// ForkedFrom is the sandbox that it began as a copy of, and Snapshot the
	// snapshot that it began from; "" for none.
	ForkedFrom sandbox.ID `json:"forked_from,omitempty"`
	Snapshot   string     `json:"snapshot,omitempty"`
}

// Fork: other sandboxes began as copies of this one.
type Fork struct {
	Forks  []string `json:"forks"`
	Paused int64    `json:"paused_ms"`
}

// Rollback: the sandbox is as it was when a snapshot was made.
type Rollback struct {
	ID     sandbox.UID `json:"id"` // of the snapshot
	Name   string      `json:"name"`
	Memory bool        `json:"memory"`
}

// SnapshotCreate: the sandbox was kept.
type SnapshotCreate struct {
	ID     sandbox.UID `json:"id"`
	Name   string      `json:"name"`
	Memory bool        `json:"memory"`
	Bytes  int64       `json:"bytes"`
	Paused int64       `json:"paused_ms"`
}

// SnapshotRemove: what was kept of the sandbox is gone.
type SnapshotRemove struct {
	ID   sandbox.UID `json:"id"`
	Name string      `json:"name"`
}

// Started: a stopped sandbox runs again.
type Started struct{}

// Updated: fields of the spec changed. Their values are not part of it.
type Updated struct {
	Fields []string `json:"fields"`
}

// Stopped: the sandbox has files and no processes. Reason is "" when somebody
// asked for it.
type Stopped struct {
	Reason string `json:"reason,omitempty"`
}

// Slept: the sandbox's memory is on the disk, and nothing of it runs. Reason is
// "" when somebody asked for it.
type Slept struct {
	Reason string `json:"reason,omitempty"`
}

// Woken: a sandbox that slept runs on. RestoreIncomplete says that its memory was
// lost, so that it began anew from its files, and Reason what that means.
type Woken struct {
	RestoreIncomplete bool   `json:"restore_incomplete,omitempty"`
	Reason            string `json:"reason,omitempty"`
}

// Failed: a create or start was undone.
type Failed struct {
	Reason string `json:"reason"`
}

// Died: the sandbox ended under its users.
type Died struct {
	Reason string `json:"reason"`
}

// Destroyed: the sandbox is gone, but for its disk when that was kept.
type Destroyed struct {
	DiskKept bool `json:"disk_kept"`
	// Reason is "" when somebody asked for it.
	Reason string `json:"reason,omitempty"`
}

// Archived: the sandbox's files are in the archive storage, checked.
type Archived struct {
	Archive string `json:"archive"`
	Bytes   int64  `json:"bytes"`
}

// ArchiveFailed: the sandbox was to be destroyed with an archive, which could
// not be made; it keeps its files.
type ArchiveFailed struct {
	Reason string `json:"reason"`
}

// Adopted: a restarted daemon found the sandbox running and goes on with it.
type Adopted struct{}

// Kept: a keepalive took or gave up a lease.
type Kept struct {
	Until string `json:"until,omitempty"` // RFC 3339; "": given up
}

// ExecQueue: a command waits for those before it in its session.
type ExecQueue struct {
	Session string `json:"session,omitempty"`
}

// SessionForget: the state of a session was removed.
type SessionForget struct {
	Session string `json:"session"`
}

// ExecStart: a command runs.
type ExecStart struct {
	Seq      int64  `json:"seq"`
	Session  string `json:"session,omitempty"`
	Terminal string `json:"terminal,omitempty"`
}

// ExecEnd: a command ended, or will never run.
type ExecEnd struct {
	Seq    int64             `json:"seq"`
	Reason sandbox.EndReason `json:"reason"`
	Code   *int              `json:"exit_code"`
}

// ServiceStart: a service runs. Seq is the exec that it runs as.
type ServiceStart struct {
	Service string `json:"service"`
	Seq     int64  `json:"seq"`
}

// ServiceEnd: a run of a service ended, or could not begin.
type ServiceEnd struct {
	Service string            `json:"service"`
	Seq     int64             `json:"seq"`
	Reason  sandbox.EndReason `json:"reason"`
	Code    *int              `json:"exit_code"`
}

// ServiceFail: a service was given up, and does not start again by itself.
type ServiceFail struct {
	Service string `json:"service"`
	Reason  string `json:"reason"`
}

// Limit: a command met a limit: "memory", "time", "output" (more than is kept)
// or "host_disk".
type Limit struct {
	Seq   int64  `json:"seq"`
	Limit string `json:"limit"`
}

// FileWrite: a file was written through the API.
type FileWrite struct {
	Path string `json:"path"`
	Size int64  `json:"size"` // of what was written
}

// FileRemove: a file or directory was removed through the API.
type FileRemove struct {
	Path string `json:"path"`
}

// FileMove: a file or directory was renamed through the API.
type FileMove struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// MakeDir: a directory was made through the API.
type MakeDir struct {
	Path string `json:"path"`
}

// FileExport: a path was given out, for download and for other sandboxes.
type FileExport struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

// FileImport: a file or directory came in from another sandbox, the host or a
// client.
type FileImport struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

// Extract: an archive was unpacked through the API.
type Extract struct {
	Path string `json:"path"`
}

// Allowed: a connection that the egress proxy let out has ended. Protocol and
// End are those of egress; End is "" when one of its sides ended it.
type Allowed struct {
	Host          string `json:"host"`
	Port          int    `json:"port"`
	Rule          string `json:"rule"`
	Protocol      string `json:"protocol"`
	BytesSent     int64  `json:"bytes_sent"`
	BytesReceived int64  `json:"bytes_received"`
	DurationMS    int64  `json:"duration_ms"`
	End           string `json:"end,omitempty"`
}

// Lent: for as long as a task runs the sandbox may reach its agent's provider.
type Lent struct {
	Host string `json:"host"`
	Port int    `json:"port"`
	Task string `json:"task_id"`
}

// Denied: the egress proxy refused a connection, or a name was not resolved.
// Protocol is one of egress, or "dns" for a name; it is absent where it is not
// known.
type Denied struct {
	Host     string `json:"host"`
	Port     int    `json:"port"`
	Rule     string `json:"rule"`
	Protocol string `json:"protocol,omitempty"`
	Message  string `json:"message"`
}

// Unlisted: what the egress proxy decided beside the events above and below,
// which are bounded for a sandbox that asks very often.
type Unlisted struct {
	Allowed       int64 `json:"allowed"`
	Denied        int64 `json:"denied"`
	BytesSent     int64 `json:"bytes_sent"` // on those that were allowed
	BytesReceived int64 `json:"bytes_received"`
}

// Frozen: the host's disk ran low and the sandboxes' disks wait.
type Frozen struct {
	FreeBytes int64 `json:"free_bytes"`
}

// Thawed: the host's disk has room again and the sandboxes' disks go on.
type Thawed struct {
	FreeBytes int64 `json:"free_bytes"`
}

// DiskFault: a disk of the sandbox is read-only, because writing to the host's disk
// failed. What was not on the host's disk by then is lost.
type DiskFault struct {
	Shared bool   `json:"shared,omitempty"` // it is the disk that the tenant's sandboxes share
	Reason string `json:"reason"`
}

// DiskRepair: the disk can be written to again. A sandbox that ran was restarted
// for it.
type DiskRepair struct {
	Shared bool `json:"shared,omitempty"`
}

// Purged: a disk and what else was kept of a destroyed sandbox was removed.
type Purged struct {
	FreedBytes int64 `json:"freed_bytes"`
}

// KernelCreate: a kernel was made on request. One that code made is not told.
type KernelCreate struct {
	Kernel   string `json:"kernel"`
	Language string `json:"language"`
}

// KernelRestart: a kernel began anew on request, without what it had in memory.
type KernelRestart struct {
	Kernel   string `json:"kernel"`
	Language string `json:"language"`
}

// KernelDelete: a kernel was ended on request.
type KernelDelete struct {
	Kernel string `json:"kernel"`
}

// KernelDeath: a kernel ended under its code.
type KernelDeath struct {
	Kernel string `json:"kernel"`
	Seq    int64  `json:"seq"` // of the code
	Reason string `json:"reason"`
}

// PortOpen: a program listens on a port. PID is inside the sandbox; "" and 0 where
// these cannot be told.
type PortOpen struct {
	Port    int    `json:"port"`
	Program string `json:"program"`
	PID     int64  `json:"pid"`
}

// PortClose: a program does not listen on a port any more.
type PortClose struct {
	Port    int    `json:"port"`
	Program string `json:"program"`
	PID     int64  `json:"pid"`
}

func (Created) Kind() string       { return SandboxCreated }
func (Started) Kind() string       { return SandboxStarted }
func (Updated) Kind() string       { return SandboxUpdated }
func (Slept) Kind() string         { return SandboxSlept }
func (Woken) Kind() string         { return SandboxWoken }
func (Stopped) Kind() string       { return SandboxStopped }
func (Failed) Kind() string        { return SandboxFailed }
func (Died) Kind() string          { return SandboxDied }
func (Destroyed) Kind() string     { return SandboxDestroyed }
func (Adopted) Kind() string       { return SandboxAdopted }
func (Kept) Kind() string          { return SandboxKept }
func (ExecQueue) Kind() string     { return ExecQueued }
func (SessionForget) Kind() string { return SessionForgotten }
func (ExecStart) Kind() string     { return ExecStarted }
func (ExecEnd) Kind() string       { return ExecFinished }
func (ServiceStart) Kind() string  { return ServiceStarted }
func (ServiceEnd) Kind() string    { return ServiceEnded }
func (ServiceFail) Kind() string   { return ServiceFailed }
func (Limit) Kind() string         { return LimitHit }
func (FileWrite) Kind() string     { return FileWritten }
func (FileRemove) Kind() string    { return FileRemoved }
func (FileMove) Kind() string      { return FileMoved }
func (MakeDir) Kind() string       { return DirMade }
func (Extract) Kind() string       { return ArchiveExtracted }
func (Allowed) Kind() string       { return EgressAllowed }
func (Lent) Kind() string          { return EgressLent }
func (Denied) Kind() string        { return EgressDenied }
func (Unlisted) Kind() string      { return EgressUnlisted }
func (Frozen) Kind() string        { return DiskFrozen }
func (Thawed) Kind() string        { return DiskThawed }
func (Purged) Kind() string        { return DiskPurged }
func (DiskFault) Kind() string     { return DiskFailed }
func (DiskRepair) Kind() string    { return DiskRepaired }

func (Fork) Kind() string           { return SandboxForked }
func (Rollback) Kind() string       { return SandboxRolled }
func (SnapshotCreate) Kind() string { return SnapshotCreated }
func (SnapshotRemove) Kind() string { return SnapshotRemoved }

func (FileExport) Kind() string    { return FileExported }
func (FileImport) Kind() string    { return FileImported }
func (KernelCreate) Kind() string  { return KernelCreated }
func (KernelRestart) Kind() string { return KernelRestarted }
func (KernelDelete) Kind() string  { return KernelDeleted }
func (KernelDeath) Kind() string   { return KernelDied }
func (PortOpen) Kind() string      { return PortOpened }
func (PortClose) Kind() string     { return PortClosed }

func (Archived) Kind() string      { return SandboxArchived }
func (ArchiveFailed) Kind() string { return ArchiveNotMade }
