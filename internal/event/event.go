// Package event names the facts of a sandbox's history and gives each its
// payload type, so that no kind is a free string and no payload can hold an
// env value, a token, a command line or file contents. It stores and sends
// nothing.
package event

import (
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
	payload, err := json.Marshal(p)
	if err != nil {
		payload = []byte("{}")
	}
	return sandbox.Event{Box: box, Actor: actor, Kind: p.Kind(), Payload: payload}
}

// all has one payload of every kind.
func all() []Payload {
	return []Payload{
		Created{}, Started{}, Updated{}, Stopped{}, Failed{}, Died{}, Destroyed{}, Adopted{},
		ExecStart{}, ExecEnd{},
		FileWrite{}, FileRemove{}, FileMove{}, MakeDir{}, Extract{},
		Allowed{}, Denied{},
		Frozen{}, Thawed{}, Purged{},
	}
}

// Kinds lists every kind.
func Kinds() []string {
	var kinds []string
	for _, p := range all() {
		kinds = append(kinds, p.Kind())
	}
	return kinds
}

// decoder returns what turns a stored payload of a kind back, nil for a kind
// that is not known.
func decoder(kind string) func([]byte) (Payload, error) {
	switch kind {
	case SandboxCreated:
		return decode[Created]
	case SandboxStarted:
		return decode[Started]
	case SandboxUpdated:
		return decode[Updated]
	case SandboxStopped:
		return decode[Stopped]
	case SandboxFailed:
		return decode[Failed]
	case SandboxDied:
		return decode[Died]
	case SandboxDestroyed:
		return decode[Destroyed]
	case SandboxAdopted:
		return decode[Adopted]
	case ExecStarted:
		return decode[ExecStart]
	case ExecFinished:
		return decode[ExecEnd]
	case FileWritten:
		return decode[FileWrite]
	case FileRemoved:
		return decode[FileRemove]
	case FileMoved:
		return decode[FileMove]
	case DirMade:
		return decode[MakeDir]
	case ArchiveExtracted:
		return decode[Extract]
	case EgressAllowed:
		return decode[Allowed]
	case EgressDenied:
		return decode[Denied]
	case DiskFrozen:
		return decode[Frozen]
	case DiskThawed:
		return decode[Thawed]
	case DiskPurged:
		return decode[Purged]
	}
	return nil
}

func decode[P Payload](text []byte) (Payload, error) {
	var p P
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, errs.E(errs.Internal, "a stored event is damaged").Because(err)
	}
	return p, nil
}

// PayloadOf returns an event's typed payload. It is errs.Unsupported for a
// kind that this version does not know.
func PayloadOf(e sandbox.Event) (Payload, error) {
	d := decoder(e.Kind)
	if d == nil {
		return nil, errs.E(errs.Unsupported, "unknown kind of event")
	}
	return d(e.Payload)
}
