package conversation

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	"github.com/google/uuid"
)

// gregorian is the beginning of the time of UUIDs, in 100 ns before 1970.
const gregorian = 0x01b21dd213814000

// ids makes that each id of this process is greater than the one before.
var ids struct {
	mu   sync.Mutex
	last uint64 // the time of the newest one; guarded by mu
}

// NewID returns a UUID of version 6: later ones are greater as texts, as clients
// that order the branches of a thread expect. Those of one process are so too when
// they are made at the same time, or the clock goes back.
func NewID() string {
	now := uint64(time.Now().UnixNano()/100) + gregorian
	ids.mu.Lock()
	now = max(now, ids.last+1)
	ids.last = now
	ids.mu.Unlock()

	var id uuid.UUID
	_, _ = rand.Read(id[8:]) // never fails
	// The library's own version 6 loses four bits of the time to the version.
	binary.BigEndian.PutUint64(id[:], now<<4&^0xffff|0x6000|now&0x0fff)
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// IDsAfter makes the ids that follow greater than one that an earlier process made,
// whose clock may have been ahead. What is no such id changes nothing.
func IDsAfter(id string) {
	u, err := uuid.Parse(id)
	if err != nil || u.Version() != 6 {
		return
	}
	high := binary.BigEndian.Uint64(u[:])
	at := high>>4&^0x0fff | high&0x0fff
	ids.mu.Lock()
	defer ids.mu.Unlock()
	ids.last = max(ids.last, at)
}
