package wire

import "sync/atomic"

// Room is what the lines of all answers that come at the same time may take of the
// memory. Nil is without bound.
type Room struct {
	whole int64
	used  atomic.Int64
}

// DefaultRoom is for one line with a large image, or some with small ones.
const DefaultRoom = 64 << 20

// NewRoom returns a room of so many bytes.
func NewRoom(whole int64) *Room { return &Room{whole: whole} }

// take takes n bytes, or gives them back when n is negative, and reports whether there
// were as many.
func (m *Room) take(n int64) bool {
	if m == nil {
		return true
	}
	if m.used.Add(n) > m.whole && n > 0 {
		m.used.Add(-n)
		return false
	}
	return true
}
