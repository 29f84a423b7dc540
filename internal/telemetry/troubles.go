package telemetry

import (
	"log/slog"
	"maps"
	"sync"
	"time"
)

const (
	firstPause = time.Minute
	lastPause  = time.Hour
	// maxTroubles bounds how many are remembered: what more things meet at the same
	// time is logged for these alone.
	maxTroubles = 1024
	// staleAfter is how long one is remembered that was not met again.
	staleAfter = 2 * lastPause
)

// Troubles logs errors that a loop meets again and again: each when it begins or
// becomes another, and while it lasts after pauses that double from a minute to an
// hour. Its methods may be called from any goroutine.
type Troubles struct {
	log *slog.Logger
	now func() time.Time

	mu  sync.Mutex
	all map[troubleKey]*trouble // guarded by mu
}

type troubleKey struct{ message, subject string }

type trouble struct {
	err    string
	next   time.Time // before it is logged again
	pause  time.Duration
	unsaid int // times since it was logged
	met    time.Time
}

// NewTroubles returns Troubles that are logged as warnings.
func NewTroubles(log *slog.Logger, now func() time.Time) *Troubles {
	return &Troubles{log: log, now: now, all: make(map[troubleKey]*trouble)}
}

// Note notes how an attempt ended; without an error what troubled the subject is
// over. The subject, as an id, is part of the log entry unless it is "".
func (t *Troubles) Note(message, subject string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := troubleKey{message, subject}
	if err == nil {
		delete(t.all, key)
		return
	}
	now := t.now()
	if len(t.all) >= maxTroubles {
		maps.DeleteFunc(t.all, func(_ troubleKey, of *trouble) bool { return now.Sub(of.met) > staleAfter })
	}
	seen := t.all[key]
	if seen == nil && len(t.all) >= maxTroubles {
		return
	}
	if seen != nil {
		seen.met = now
	}
	switch {
	case seen == nil || seen.err != err.Error():
		seen = &trouble{err: err.Error(), pause: firstPause, met: now}
		t.all[key] = seen
	case now.Before(seen.next):
		seen.unsaid++
		return
	default:
		seen.pause = min(2*seen.pause, lastPause)
	}
	args := []any{KeyErr, err}
	if subject != "" {
		args = append(args, "subject", subject)
	}
	if seen.unsaid > 0 {
		args = append(args, "repeated", seen.unsaid)
	}
	seen.next, seen.unsaid = now.Add(seen.pause), 0
	t.log.Warn(message, args...)
}

// Forget ends what troubled a subject that is gone.
func (t *Troubles) Forget(subject string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.all {
		if key.subject == subject {
			delete(t.all, key)
		}
	}
}
