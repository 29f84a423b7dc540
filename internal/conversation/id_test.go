package conversation

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestNewIDs(t *testing.T) {
	last := ""
	for range 100_000 {
		id := NewID()
		if id <= last {
			t.Fatalf("%s comes after %s", id, last)
		}
		last = id
	}
	id, err := uuid.Parse(last)
	if err != nil || id.Version() != 6 || id.Variant() != uuid.RFC4122 {
		t.Fatalf("%s is of version %d, variant %s: %v", last, id.Version(), id.Variant(), err)
	}
	high := int64(binary.BigEndian.Uint64(id[:]))
	at := time.Unix(0, ((high>>16<<12|high&0xfff)-gregorian)*100)
	if d := time.Since(at).Abs(); d > time.Hour {
		t.Errorf("%s is of a time %s away", last, d)
	}
}

// TestIDsAfterAClockThatWasAhead: those of the next process are greater nevertheless.
func TestIDsAfterAClockThatWasAhead(t *testing.T) {
	NewID() // sets it to now
	defer func(was uint64) { ids.last = was }(ids.last)
	ids.last += 10_000_000 * 3600 // an hour
	ahead := NewID()
	ids.last = 0
	if id := NewID(); id > ahead {
		t.Fatalf("%s is not before %s", id, ahead)
	}
	IDsAfter("")
	IDsAfter("something")
	IDsAfter(ahead)
	if id := NewID(); id <= ahead {
		t.Errorf("%s is not after %s", id, ahead)
	}
}
