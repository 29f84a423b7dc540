package store

import (
	"sync"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// notices tells readers of events, and of a thread's runs, that there are more. It
// knows nothing of them themselves: a reader looks for what comes after its cursor.
type notices struct {
	mu  sync.Mutex
	all map[sandbox.UID]*watched // guarded by mu
}

// watched is a sandbox, or a thread, that somebody watches.
type watched struct {
	by    map[chan struct{}]struct{}
	given uint64 // notices
}

// WatchEvents returns a channel that has a token whenever events of a sandbox
// may have been committed since the last token was taken, until stop is
// called. Who watches first and reads then misses none.
func (s *Store) WatchEvents(box sandbox.UID) (more <-chan struct{}, stop func()) {
	return s.notices.watch(box)
}

// EventNotices is how many notices of a sandbox's events have been given since somebody
// watches them. While it is the same, there are no more events.
func (s *Store) EventNotices(box sandbox.UID) uint64 {
	s.notices.mu.Lock()
	defer s.notices.mu.Unlock()
	if w := s.notices.all[box]; w != nil {
		return w.given
	}
	return 0
}

// WatchRuns is [Store.WatchEvents] of the runs of a thread, and of its end.
func (s *Store) WatchRuns(thread sandbox.UID) (more <-chan struct{}, stop func()) {
	return s.notices.watch(thread)
}

func (n *notices) watch(box sandbox.UID) (more <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = make(map[sandbox.UID]*watched)
	}
	if n.all[box] == nil {
		n.all[box] = &watched{by: make(map[chan struct{}]struct{})}
	}
	n.all[box].by[c] = struct{}{}
	return c, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		w := n.all[box]
		if w == nil {
			return
		}
		if delete(w.by, c); len(w.by) == 0 {
			delete(n.all, box)
		}
	}
}

// tell is called after a commit with the sandboxes whose events it has, and the threads
// whose runs.
func (n *notices) tell(boxes []sandbox.UID) {
	if len(boxes) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, box := range boxes {
		w := n.all[box]
		if w == nil {
			continue
		}
		w.given++ // before the first token of it
		for c := range w.by {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
}
