// Package notice tells readers of events, and of a thread's runs, that there are more.
// It knows nothing of them themselves: a reader looks for what comes after its cursor.
package notice

import (
	"sync"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Notices are those of one store. The zero value is ready; its methods are safe for
// concurrent use.
type Notices struct {
	mu  sync.Mutex
	all map[sandbox.UID]*watched // guarded by mu
}

// watched is a sandbox, or a thread, that somebody watches.
type watched struct {
	by    map[chan struct{}]struct{}
	given uint64 // notices
}

// Watch returns a channel that has a token whenever Tell has named the sandbox, or the
// thread, since the last token was taken, until stop is called.
func (n *Notices) Watch(box sandbox.UID) (more <-chan struct{}, stop func()) {
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

// Given is how many notices have been given since somebody watches; 0 when nobody does.
func (n *Notices) Given(box sandbox.UID) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.all[box]; w != nil {
		return w.given
	}
	return 0
}

// Tell is called after a commit with the sandboxes whose events it has, and the threads
// whose runs.
func (n *Notices) Tell(boxes []sandbox.UID) {
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
