package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// WebhookState is what became of a message to a webhook.
type WebhookState string

const (
	WebhookPending   WebhookState = "pending"
	WebhookDelivered WebhookState = "delivered"
	WebhookFailed    WebhookState = "failed"
)

// WebhookMessage is one request to a webhook, with all its attempts.
type WebhookMessage struct {
	ID      string
	Tenant  string
	Kind    string // of what it tells, as run.ended
	Subject string // what it tells of
	URL     string
	Body    []byte // JSON; of one that has ended nothing is kept
	State   WebhookState
	// Attempts were begun; Status is that of the last answer, 0 for none, and Failure why
	// the last attempt failed.
	Attempts  int
	Status    int
	Failure   string
	NextAt    time.Time // of a pending one
	CreatedAt time.Time
	UpdatedAt time.Time
}

// maxEndedWebhooks bounds the messages of a tenant that have ended: the oldest go first.
const maxEndedWebhooks = 1000

const webhookColumns = `id, tenant, kind, subject, url, state, attempts, status, failure, next_at, created_at, updated_at, body`

// AddWebhookMessage adds a message that is to be sent at once. It is durable.
func (s *Store) AddWebhookMessage(ctx context.Context, m WebhookMessage) error {
	return s.update(ctx, durable, func(t *tx) error { return t.addWebhookMessage(m, s.now()) })
}

func (t *tx) addWebhookMessage(m WebhookMessage, now time.Time) error {
	_, err := t.exec(`INSERT INTO webhook_messages (`+webhookColumns+`, bytes)
			VALUES ($1, $2, $3, $4, $5, 'pending', 0, 0, '', $6, $6, $6, $7, $8)`,
		m.ID, m.Tenant, m.Kind, m.Subject, m.URL, column.Micros(now), strings.ToValidUTF8(string(m.Body), "\ufffd"), len(m.Body))
	return err
}

// PendingWebhooks says how many messages of a tenant are to be sent, and how many bytes
// they have.
func (s *Store) PendingWebhooks(ctx context.Context, tenant string) (n int, bytes int64, err error) {
	err = s.reads.Row(ctx, `SELECT COUNT(*), COALESCE(SUM(bytes), 0) FROM webhook_messages WHERE tenant = $1 AND state = 'pending'`, tenant).Scan(&n, &bytes)
	return n, bytes, s.fault(err)
}

// DueWebhooks is when the next message of each tenant that has any is to be sent.
func (s *Store) DueWebhooks(ctx context.Context) (map[string]time.Time, error) {
	due := map[string]time.Time{}
	rows, err := s.reads.Rows(ctx, `SELECT tenant, MIN(next_at) FROM webhook_messages WHERE state = 'pending' GROUP BY tenant`)
	_, err = engine.Collect(rows, err, func(r engine.Row) (_ struct{}, err error) {
		var tenant string
		var at int64
		err = r.Scan(&tenant, &at)
		due[tenant] = column.FromMicros(at)
		return struct{}{}, err
	})
	return due, s.fault(err)
}

// ClaimWebhook returns the message of a tenant that is due for longest, whose next
// attempt it begins: until lease has passed nobody else is given it. NotFound when none
// is due.
func (s *Store) ClaimWebhook(ctx context.Context, tenant string, lease time.Duration) (m WebhookMessage, err error) {
	err = s.update(ctx, relaxed, func(t *tx) error {
		now := s.now()
		m, err = scanWebhook(t.row(`UPDATE webhook_messages SET attempts = attempts + 1, next_at = $3, updated_at = $2 WHERE id = (
				SELECT id FROM webhook_messages WHERE tenant = $1 AND state = 'pending' AND next_at <= $2 ORDER BY next_at, id LIMIT 1)
				RETURNING `+webhookColumns, tenant, column.Micros(now), column.Micros(now.Add(lease))))
		return err
	})
	return m, err
}

// EndWebhookAttempt notes how an attempt ended: State, Status, Failure, Attempts and, of
// one that is pending still, NextAt. It is relaxed: what a power cut takes is sent again.
func (s *Store) EndWebhookAttempt(ctx context.Context, m WebhookMessage) error {
	return s.update(ctx, relaxed, func(t *tx) error {
		if _, err := t.exec(`UPDATE webhook_messages SET state = $2, attempts = $3, status = $4, failure = $5, next_at = $6, updated_at = $7,
				body = CASE WHEN $2 = 'pending' THEN body ELSE '' END, bytes = CASE WHEN $2 = 'pending' THEN bytes ELSE 0 END WHERE id = $1 AND state = 'pending'`,
			m.ID, string(m.State), m.Attempts, m.Status, m.Failure, column.Micros(m.NextAt), column.Micros(s.now())); err != nil || m.State == WebhookPending {
			return err
		}
		_, err := t.exec(`DELETE FROM webhook_messages WHERE state <> 'pending' AND id IN (
				SELECT id FROM webhook_messages WHERE tenant = $1 ORDER BY created_at DESC, id DESC LIMIT 1000 OFFSET $2)`, m.Tenant, maxEndedWebhooks)
		return err
	})
}

// WebhookMessages returns the messages of a tenant without their bodies, newest first.
func (s *Store) WebhookMessages(ctx context.Context, tenant string, most, offset int) ([]WebhookMessage, error) {
	rows, err := s.reads.Rows(ctx, `SELECT id, tenant, kind, subject, url, state, attempts, status, failure, next_at, created_at, updated_at, ''
			FROM webhook_messages WHERE tenant = $1 ORDER BY created_at DESC, id DESC LIMIT $2 OFFSET $3`, tenant, limit(most), offset)
	list, err := engine.Collect(rows, err, scanWebhook)
	return list, s.fault(err)
}

// ForgetWebhookMessages removes messages that ended before a time, at most so many. It
// returns how many there were.
func (s *Store) ForgetWebhookMessages(ctx context.Context, before time.Time, most int) (n int64, err error) {
	err = s.update(ctx, relaxed, func(t *tx) error {
		n, err = t.exec(`DELETE FROM webhook_messages WHERE id IN (
				SELECT id FROM webhook_messages WHERE state <> 'pending' AND updated_at < $1 ORDER BY updated_at LIMIT $2)`, column.Micros(before), most)
		return err
	})
	return n, err
}

func scanWebhook(r engine.Row) (m WebhookMessage, err error) {
	var next, created, updated int64
	var body string
	err = r.Scan(&m.ID, &m.Tenant, &m.Kind, &m.Subject, &m.URL, &m.State, &m.Attempts, &m.Status, &m.Failure, &next, &created, &updated, &body)
	if errors.Is(err, sql.ErrNoRows) {
		return m, errs.E(errs.NotFound, "no message is due")
	}
	m.Body, m.NextAt, m.CreatedAt, m.UpdatedAt = []byte(body), column.FromMicros(next), column.FromMicros(created), column.FromMicros(updated)
	return m, err
}

// webhookPlace is what the secret of a tenant is sealed for.
func webhookPlace(tenant string) string { return "webhooks of " + tenant }

// WebhookSecret returns what the messages of a tenant are signed with; one that has
// nothing yet gets secret. With replace it gets that in any case.
func (s *Store) WebhookSecret(ctx context.Context, tenant string, secret []byte, replace bool) (kept []byte, err error) {
	open := func(r engine.Row) error {
		var sealed string
		if err := r.Scan(&sealed); err != nil {
			return err
		}
		if kept, err = s.seal.Open(webhookPlace(tenant), sealed); err != nil {
			return errs.E(errs.Internal, "cannot decrypt the secret of the tenant's webhooks").
				Hint("the key file does not belong to this database; restore it, or make a new secret").Because(err)
		}
		return nil
	}
	const selectSecret = `SELECT secret FROM webhook_secrets WHERE tenant = $1`
	if !replace {
		if err := open(s.reads.Row(ctx, selectSecret, tenant)); !errors.Is(err, sql.ErrNoRows) {
			return kept, s.fault(err)
		}
	}
	err = s.update(ctx, durable, func(t *tx) error {
		if !replace {
			if err := open(t.row(selectSecret, tenant)); !errors.Is(err, sql.ErrNoRows) {
				return err
			}
		}
		kept = secret
		_, err := t.exec(`INSERT INTO webhook_secrets (tenant, secret, updated_at) VALUES ($1, $2, $3)
				ON CONFLICT (tenant) DO UPDATE SET secret = excluded.secret, updated_at = excluded.updated_at`,
			tenant, t.seal.Seal(webhookPlace(tenant), secret), column.Micros(s.now()))
		return err
	})
	return kept, err
}
