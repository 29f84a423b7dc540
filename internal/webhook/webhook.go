// Package webhook sends messages to URLs that callers name, signed as Standard Webhooks
// has it, until their receiver answers 2xx or too many attempts have failed. Messages are
// in the store from when they are added: a daemon that is killed leaves them to the next
// one, and a receiver may see one twice, with the same id.
//
// A URL must not turn the daemon into a way to internal services. The sender connects
// only to the public Internet and the networks that the operator allows, follows no
// redirect, uses no proxy, and reports only the status of an answer.
package webhook

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/budget"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
	"github.com/cubbyhq/cubby/internal/tenancy"
)

// The bounds of what is sent.
const (
	// MaxBody bounds the body of a message.
	MaxBody = 4 << 20
	// A tenant that has more to be sent gets no new ones.
	maxPending      = 1000
	maxPendingBytes = 64 << 20
	// Attempts that are made at once, of all tenants and of one.
	atOnce, atOnceOfTenant = 32, 4
	// answerIn is how long a receiver may take, and lease how long a message is nobody
	// else's: a daemon that is killed leaves it for that.
	answerIn = 15 * time.Second
	lease    = time.Minute
	// kept is how long messages are shown that have ended.
	kept = 7 * 24 * time.Hour
	// lookEvery bounds how long the time of the next message is trusted: clocks change.
	lookEvery = time.Minute
)

// Config is what a Sender needs.
type Config struct {
	Store *store.Store
	// Private are the networks that are not public and may be connected to.
	Private []netip.Prefix
	Budget  budget.Budget    // the zero one charges nothing
	Log     *slog.Logger     // nil: silent
	Now     func() time.Time // nil: time.Now; the store's
	// FirstPause is how long the second attempt waits; 0: five seconds. Each later one
	// waits three times as long, at most LongestPause; 0: eight hours.
	FirstPause, LongestPause time.Duration
	Resolver                 Resolver // nil: the machine's
}

// Sender sends messages. Make one with [New]; all methods may be called from any
// goroutine.
type Sender struct {
	cfg    Config
	client *http.Client
	wake   chan struct{} // has a token when there may be something to send
	places *tenancy.Places
	work   sync.WaitGroup
	forgot time.Time // when old messages were last removed; Run's own
}

// New returns a Sender. It sends while [Sender.Run] runs.
func New(c Config) *Sender {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.FirstPause, c.LongestPause = cmp.Or(c.FirstPause, 5*time.Second), cmp.Or(c.LongestPause, 8*time.Hour)
	return &Sender{
		cfg: c, client: newClient(c), wake: make(chan struct{}, 1),
		places: tenancy.NewPlaces("messages to webhooks", tenancy.Bound{All: atOnce, Tenant: atOnceOfTenant}),
	}
}

// Wake is called when a message was added to the store.
func (s *Sender) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Admit is OverQuota when a tenant has so much to be sent that no more is taken.
func (s *Sender) Admit(ctx context.Context, tenant string) error {
	n, bytes, err := s.cfg.Store.PendingWebhooks(ctx, tenant)
	if err == nil && (n >= maxPending || bytes >= maxPendingBytes) {
		err = errs.E(errs.OverQuota, "%d messages to webhooks of this tenant are not delivered yet, and no more are taken", n).
			Hint("see GET /v1/webhooks/messages for why; name no webhook, or repair its receiver")
	}
	return err
}

// Run sends what there is until ctx ends. It asks the store when it starts, when it is
// woken, and when a message that waits is due.
func (s *Sender) Run(ctx context.Context) error {
	defer s.client.CloseIdleConnections()
	defer s.work.Wait()
	failing := false
	for {
		next, err := s.dispatch(ctx)
		if err != nil && ctx.Err() == nil {
			if !failing {
				s.cfg.Log.Warn("look for messages to webhooks", telemetry.KeyErr, err)
			}
			next = s.cfg.Now().Add(5 * time.Second)
		}
		failing = err != nil
		if !s.rest(ctx, next) {
			return nil
		}
	}
}

// rest waits until there may be something to send: until next, unless that is zero. It is
// false when ctx has ended.
func (s *Sender) rest(ctx context.Context, next time.Time) bool {
	var due <-chan time.Time
	if !next.IsZero() {
		timer := time.NewTimer(max(min(next.Sub(s.cfg.Now()), lookEvery), 0))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-s.wake:
	case <-due:
	}
	return true
}

// dispatch begins the attempts that are due and have a place. It returns when the next
// one is due; zero: none is, or one that ends wakes.
func (s *Sender) dispatch(ctx context.Context) (next time.Time, err error) {
	due, err := s.cfg.Store.DueWebhooks(ctx)
	if err != nil || len(due) == 0 {
		return next, err
	}
	now := s.cfg.Now()
	if now.Sub(s.forgot) > time.Hour {
		if _, err := s.cfg.Store.ForgetWebhookMessages(ctx, now.Add(-kept), 1000); err != nil {
			return next, err
		}
		s.forgot = now
	}
	// One message of each tenant after the other, so that none waits for all of another's.
	for len(due) > 0 {
		for tenant, at := range due {
			if at.After(now) {
				if next.IsZero() || at.Before(next) {
					next = at
				}
				delete(due, tenant)
				continue
			}
			leave, err := s.places.Enter(tenant)
			if err != nil { // it has its share: what ends makes room, and wakes
				delete(due, tenant)
				continue
			}
			m, err := s.cfg.Store.ClaimWebhook(ctx, tenant, lease)
			if err != nil {
				leave()
				if !errors.Is(err, errs.NotFound) {
					return next, err
				}
				delete(due, tenant)
				s.Wake() // others of its messages may wait for their time
				continue
			}
			s.work.Go(func() {
				defer s.Wake()
				defer leave()
				s.attempt(ctx, m)
			})
		}
	}
	return next, nil
}

// Messages returns the messages of the caller's tenant without their bodies, newest first.
// They are charged to the caller's memory.
func (s *Sender) Messages(ctx context.Context, most, offset int) ([]store.WebhookMessage, error) {
	done, err := s.cfg.Budget.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	list, err := s.cfg.Store.WebhookMessages(ctx, auth.From(ctx).Tenant, most, offset)
	if err != nil {
		return nil, err
	}
	var bytes int64
	for _, m := range list {
		bytes += int64(messageBytes + len(m.Subject) + len(m.URL) + len(m.Failure))
	}
	return list, s.cfg.Budget.ChargeList(ctx, bytes)
}

// messageBytes is about what a message takes beside its texts.
const messageBytes = 256
