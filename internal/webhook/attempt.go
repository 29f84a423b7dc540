package webhook

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// maxAttempts are made until one is answered well, in some thirteen hours.
const maxAttempts = 10

// attempt sends a message once, and notes how that ended.
func (s *Sender) attempt(ctx context.Context, m store.WebhookMessage) {
	status, after, err := s.send(ctx, m)
	m.Status, m.Failure = status, ""
	switch {
	case err != nil && ctx.Err() != nil: // the daemon stops: the next one sends it at once
		m.Attempts--
		m.State, m.NextAt = store.WebhookPending, s.cfg.Now()
	case err == nil && status/100 == 2:
		m.State = store.WebhookDelivered
	default:
		m.Failure = failure(status, err)
		m.State, m.NextAt = store.WebhookPending, s.cfg.Now().Add(max(s.pause(m.Attempts), after))
		var refused addressError
		if errors.As(err, &refused) || status == http.StatusGone || m.Attempts >= maxAttempts {
			m.State = store.WebhookFailed
			s.cfg.Log.Warn("a message to a webhook is given up", "message", m.ID, "tenant", m.Tenant, "subject", m.Subject, "attempts", m.Attempts, "why", m.Failure)
		}
	}
	if err := s.cfg.Store.EndWebhookAttempt(context.WithoutCancel(ctx), m); err != nil {
		s.cfg.Log.Error("note how a message to a webhook ended", "message", m.ID, telemetry.KeyErr, err) // it is sent again when its lease has passed
	}
}

// send posts a message. after is how long its receiver wants to be left alone.
func (s *Sender) send(ctx context.Context, m store.WebhookMessage) (status int, after time.Duration, err error) {
	secret, err := s.secret(ctx, m.Tenant)
	if err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerIn)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL, bytes.NewReader(m.Body))
	if err != nil {
		return 0, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "cubby/"+telemetry.Version)
	sign(req.Header, secret, m.ID, s.cfg.Now(), m.Body)
	res, err := s.client.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer res.Body.Close()
	_, _ = io.CopyN(io.Discard, res.Body, 64<<10)             // the connection can be used again
	seconds, _ := strconv.Atoi(res.Header.Get("Retry-After")) // a date is as none
	return res.StatusCode, min(max(time.Duration(seconds)*time.Second, 0), s.cfg.LongestPause), nil
}

// pause is how long the attempt after the nth waits, within a tenth: what failed together
// does not come again together.
func (s *Sender) pause(n int) time.Duration {
	p := s.cfg.FirstPause
	for range n - 1 {
		p = min(3*p, s.cfg.LongestPause)
	}
	tenth, err := rand.Int(rand.Reader, big.NewInt(int64(p/10)+1))
	if err != nil {
		return p
	}
	return p + time.Duration(tenth.Int64())
}

// failure says why an attempt failed, without what only the daemon should know.
func failure(status int, err error) string {
	var refused addressError
	var name *net.DNSError
	var classified *errs.Error
	var certificate *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var timeout interface{ Timeout() bool }
	switch {
	case err == nil && status/100 == 3:
		return "answered " + strconv.Itoa(status) + ": redirects are not followed"
	case err == nil && status == http.StatusGone:
		return "answered 410: it wants no more messages"
	case err == nil:
		return "answered " + strconv.Itoa(status)
	case errors.As(err, &refused):
		return refused.Error()
	case errors.As(err, &classified):
		return errs.Public(err).Message
	case errors.As(err, &name):
		return "its host name cannot be resolved"
	case errors.As(err, &certificate), errors.As(err, &authority):
		return "its TLS certificate is not valid"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in " + answerIn.String()
	}
	return "cannot connect, or the connection broke"
}
