package store

import (
	"sync"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// notices tells readers of events, and of a thread's runs, that there are more. It
// knows nothing of them themselves: a reader looks for what comes after its cursor.
type notices struct {
	mu  sync.Mutex
	all map[sandbox.UID]map[chan struct{}]struct{} // guarded by mu
}

// WatchEvents returns a channel that has a token whenever events of a sandbox
// may have been committed since the last token was taken, until stop is
// called. Who watches first and reads then misses none.
func (s *Store) WatchEvents(box sandbox.UID) (more <-chan struct{}, stop func()) {
	return s.notices.watch(box)
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
		n.all = make(map[sandbox.UID]map[chan struct{}]struct{})
	}
	if n.all[box] == nil {
		n.all[box] = make(map[chan struct{}]struct{})
	}
	n.all[box][c] = struct{}{}
	return c, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.all[box], c)
		if len(n.all[box]) == 0 {
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
		for c := range n.all[box] {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
}
