package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/cubbyhq/cubby/internal/auth"
)

// NewID returns the id of a message.
func NewID() string { return "msg_" + uuid.NewString() }

// secretBytes is how long secrets are.
const secretBytes = 32

func newSecret() ([]byte, error) {
	secret := make([]byte, secretBytes)
	_, err := rand.Read(secret)
	return secret, err
}

// secret is what the messages of a tenant are signed with. The first message makes it.
func (s *Sender) secret(ctx context.Context, tenant string) ([]byte, error) {
	fresh, err := newSecret()
	if err != nil {
		return nil, err
	}
	return s.cfg.Store.WebhookSecret(ctx, tenant, fresh, false)
}

// RenewSecret gives the caller's tenant a new secret and returns it, as receivers need it
// to check signatures: this is the only time that it is shown. What is sent from now on
// is signed with it.
func (s *Sender) RenewSecret(ctx context.Context) (string, error) {
	fresh, err := newSecret()
	if err != nil {
		return "", err
	}
	fresh, err = s.cfg.Store.WebhookSecret(ctx, auth.From(ctx).Tenant, fresh, true)
	if err != nil {
		return "", err
	}
	return "whsec_" + base64.StdEncoding.EncodeToString(fresh), nil
}

// sign adds the headers of Standard Webhooks.
func sign(h http.Header, secret []byte, id string, now time.Time, body []byte) {
	at := strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(id + "." + at + "."))
	mac.Write(body)
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", at)
	h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}
