package egress

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

const (
	// A sandbox that asks very often gets no line for each time.
	loggedRate  = 5 // a second
	loggedBurst = 50
	// sumEvery is how often the log says what has no line.
	sumEvery = 10 * time.Second
)

// Ledger writes the decisions of a proxy that runs alone, and what became of
// what it allowed, to a log and to metrics. A sandbox that has too many lines
// gets sums instead. Its methods are for [Config].
type Ledger struct {
	log     *slog.Logger
	metrics *telemetry.Metrics

	mu       sync.Mutex
	accounts map[sandbox.UID]*account
}

// account is one sandbox's.
type account struct {
	lines *rate.Limiter
	sum   sum // of what has no line
}

type sum struct{ allowed, denied, sent, received int64 }

// NewLedger returns an empty one. It starts nothing.
func NewLedger(log *slog.Logger, metrics *telemetry.Metrics) *Ledger {
	return &Ledger{log: log, metrics: metrics, accounts: make(map[sandbox.UID]*account)}
}

// Decided hears a decision.
func (l *Ledger) Decided(box sandbox.UID, d Decision) {
	l.metrics.Egress(d.Allow, string(d.Rule))
	if !d.Allow && l.mayWrite(box, sum{denied: 1}) { // of what is allowed the end has a line
		l.log.Info("denied", telemetry.KeyUID, box, "host", d.Host, "port", d.Port, "rule", d.Rule, "reason", d.Reason)
	}
}

// Ended hears what became of a request that was allowed.
func (l *Ledger) Ended(box sandbox.UID, c Connection) {
	l.metrics.EgressEnded(string(c.Protocol), string(c.End), c.Duration)
	if l.mayWrite(box, sum{1, 0, c.Sent, c.Received}) {
		l.log.Info("allowed", telemetry.KeyUID, box, "host", c.Host, "port", c.Port, "rule", c.Rule, "protocol", c.Protocol,
			"sent", c.Sent, "received", c.Received, "duration", c.Duration, "end", c.End)
	}
}

// mayWrite reports whether a sandbox gets one more line, and adds to its sum
// otherwise.
func (l *Ledger) mayWrite(box sandbox.UID, otherwise sum) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[box]
	if a == nil {
		a = &account{lines: rate.NewLimiter(loggedRate, loggedBurst)}
		l.accounts[box] = a
	}
	if a.lines.Allow() {
		return true
	}
	l.metrics.EgressUnlisted()
	a.sum.allowed += otherwise.allowed
	a.sum.denied += otherwise.denied
	a.sum.sent += otherwise.sent
	a.sum.received += otherwise.received
	return false
}

// Run writes the sums now and then until ctx ends.
func (l *Ledger) Run(ctx context.Context) {
	tick := time.NewTicker(sumEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.Flush()
		case <-ctx.Done():
			return
		}
	}
}

// Flush writes the sums, and forgets the sandboxes that have been quiet.
func (l *Ledger) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for box, a := range l.accounts {
		if u := a.sum; u != (sum{}) {
			l.log.Info("not every connection has a line", telemetry.KeyUID, box, "allowed", u.allowed, "denied", u.denied, "sent", u.sent, "received", u.received)
			a.sum = sum{}
		} else if a.lines.Tokens() >= loggedBurst {
			delete(l.accounts, box)
		}
	}
}
