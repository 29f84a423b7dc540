// Package event names the facts of a sandbox's history and gives each its
// payload type, so that no kind is a free string and no payload can hold an
// env value, a token, a command line or file contents. The events of an
// operation that is more than a plain command have its kind ("git.clone") and
// as payload what it was asked, see [sandbox.ExecSpec]. It stores and sends
// nothing.
package event

import (
	"bytes"
	"encoding/json"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Payload is the typed content of one kind of event.
type Payload interface {
	// Kind names the fact: "<noun>.<what happened>".
	Kind() string
}

// New makes an event of a sandbox; box is "" for facts about the host, actor
// "" for cubby itself. Its cursor and time are the store's to set.
func New(box sandbox.UID, actor string, p Payload) sandbox.Event {
	// Payloads are structs of strings and numbers: no value of them fails.
	payload, err := encode(p)
	if err != nil {
		payload = []byte("{}")
	}
	return sandbox.Event{Box: box, Actor: actor, Kind: p.Kind(), Status: statusOf(p), Payload: payload}
}

// statusOf is the status of an act that was over at once.
func statusOf(p Payload) sandbox.ExecStatus {
	switch p.(type) {
	case Failed, Died, Denied, Frozen, DiskFault, Limit, KernelDeath, ServiceFail:
		return sandbox.ExecError
	}
	return sandbox.ExecDone
}

// encode leaves <, > and & as they are: a payload is shown as it is stored.
func encode(p Payload) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(p)
	return bytes.TrimSpace(b.Bytes()), err
}

// fact is one kind of event.
type fact struct {
	zero   Payload
	decode func([]byte) (Payload, error)
}

func of[P Payload]() fact {
	var zero P
	return fact{zero, func(text []byte) (Payload, error) {
		var p P
		if err := json.Unmarshal(text, &p); err != nil {
			return nil, errs.E(errs.Internal, "a stored event is damaged").Because(err)
		}
		return p, nil
	}}
}

// facts has every kind.
func facts() []fact {
	return []fact{
		of[Created](), of[Started](), of[Updated](), of[Slept](), of[Woken](), of[Stopped](), of[Failed](), of[Died](), of[Destroyed](), of[Adopted](), of[Archived](), of[ArchiveFailed](), of[Kept](),
		of[Fork](), of[Rollback](), of[SnapshotCreate](), of[SnapshotRemove](),
		of[ExecQueue](), of[ExecStart](), of[ExecEnd](), of[Limit](), of[SessionForget](),
		of[ServiceStart](), of[ServiceEnd](), of[ServiceFail](),
		of[FileWrite](), of[FileRemove](), of[FileMove](), of[MakeDir](), of[Extract](), of[FileExport](), of[FileImport](),
		of[Allowed](), of[Denied](), of[Unlisted](), of[Lent](),
		of[Frozen](), of[Thawed](), of[Purged](), of[DiskFault](), of[DiskRepair](),
		of[KernelCreate](), of[KernelRestart](), of[KernelDelete](), of[KernelDeath](),
		of[PortOpen](), of[PortClose](),
	}
}

// Kinds lists every kind.
func Kinds() []string {
	var kinds []string
	for _, f := range facts() {
		kinds = append(kinds, f.zero.Kind())
	}
	return kinds
}

// PayloadOf returns an event's typed payload. It is errs.Unsupported for a
// kind that this version does not know.
func PayloadOf(e sandbox.Event) (Payload, error) {
	for _, f := range facts() {
		if f.zero.Kind() == e.Kind {
			return f.decode(e.Payload)
		}
	}
	return nil, errs.E(errs.Unsupported, "unknown kind of event")
}
