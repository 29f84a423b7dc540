package repair

import (
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	// A disk that fails again and again is repaired after pauses that double.
	firstPause = 10 * time.Second
	lastPause  = 10 * time.Minute
	// soundAfter is how long after a repair a fault is another matter.
	soundAfter = time.Hour
)

// Pace is how often disks are repaired. The zero value is ready to use, from any
// goroutine.
type Pace struct {
	mu   sync.Mutex
	last map[sandbox.UID]attempt // by disk; guarded by mu
}

type attempt struct {
	at    time.Duration // uptime
	pause time.Duration // until the next
}

// Begin reports whether a disk is to be repaired at this uptime, and if so notes it.
func (p *Pace) Begin(disk sandbox.UID, uptime time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = make(map[sandbox.UID]attempt)
	}
	for uid, a := range p.last {
		if uptime-a.at > soundAfter {
			delete(p.last, uid)
		}
	}
	before, again := p.last[disk]
	if again && uptime-before.at < before.pause {
		return false
	}
	p.last[disk] = attempt{uptime, max(firstPause, min(2*before.pause, lastPause))}
	return true
}
