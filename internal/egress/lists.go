package egress

import (
	"slices"
	"sync"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// maxRead bounds the lists of hosts that are kept as they were read.
const maxRead = 256

// defaultAllow is the list of a policy without one, always in the same place.
var defaultAllow = sandbox.DefaultAllow()

// lists keeps the lists of policies as they were read: that takes some
// microseconds for an entry, and a program can ask for names as fast as it goes.
// Its methods are safe for concurrent use.
type lists struct {
	mu   sync.Mutex
	read map[*string]readList // by where the list is; guarded by mu
}

// readList holds its list, so that no other one can be in the same place.
type readList struct {
	entries, as []string // the list, and what it said when it was read
	patterns    patterns
	err         error
}

// patterns is parsePatterns.
func (l *lists) patterns(entries []string) (patterns, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	at := &entries[0]
	l.mu.Lock()
	known, ok := l.read[at]
	l.mu.Unlock()
	if ok && slices.Equal(known.as, entries) {
		return known.patterns, known.err
	}
	known = readList{entries: entries, as: slices.Clone(entries)}
	known.patterns, known.err = parsePatterns(entries)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.read) >= maxRead {
		clear(l.read)
	}
	if l.read == nil {
		l.read = make(map[*string]readList)
	}
	l.read[at] = known
	return known.patterns, known.err
}
