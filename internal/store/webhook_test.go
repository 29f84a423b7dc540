package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/column"
)

func TestWebhookMessages(t *testing.T) {
	s, c := fresh(t)
	ctx := t.Context()
	m := WebhookMessage{ID: "m1", Tenant: "acme", Kind: "k", Subject: "/x", URL: "https://example.com/", Body: []byte("{\"a\":1}\xff")}
	if err := s.AddWebhookMessage(ctx, m); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "one with its id", s.AddWebhookMessage(ctx, m), errs.Conflict)
	_, err := s.ClaimWebhook(ctx, "beta", time.Minute)
	wantKind(t, "ClaimWebhook of another tenant", err, errs.NotFound)
	at := c.advance(time.Second)
	got, err := s.ClaimWebhook(ctx, "acme", time.Minute)
	if err != nil || string(got.Body) != "{\"a\":1}\ufffd" || got.Attempts != 1 || got.URL != m.URL || got.Subject != "/x" {
		t.Errorf("ClaimWebhook = %+v, %v", got, err)
	}
	_, err = s.ClaimWebhook(ctx, "acme", time.Minute)
	wantKind(t, "ClaimWebhook of one that is claimed", err, errs.NotFound)
	if due, err := s.DueWebhooks(ctx); err != nil || len(due) != 1 || !due["acme"].Equal(column.FromMicros(column.Micros(at.Add(time.Minute)))) {
		t.Errorf("DueWebhooks = %v, %v", due, err)
	}
	c.advance(2 * time.Minute) // whoever claimed it is gone
	if got, err = s.ClaimWebhook(ctx, "acme", time.Minute); err != nil || got.Attempts != 2 {
		t.Errorf("ClaimWebhook after its lease = %+v, %v", got, err)
	}
	if n, bytes, err := s.PendingWebhooks(ctx, "acme"); n != 1 || bytes == 0 || err != nil {
		t.Errorf("PendingWebhooks = %d, %d, %v", n, bytes, err)
	}
	got.State, got.Status, got.Failure = WebhookFailed, 500, "answered 500"
	if err := s.EndWebhookAttempt(ctx, got); err != nil {
		t.Fatal(err)
	}
	got.State = WebhookDelivered // somebody who was slow: it has an end
	if err := s.EndWebhookAttempt(ctx, got); err != nil {
		t.Fatal(err)
	}
	list, err := s.WebhookMessages(ctx, "acme", 0, 0)
	if err != nil || len(list) != 1 || list[0].State != WebhookFailed || list[0].Status != 500 || list[0].Failure != "answered 500" || len(list[0].Body) > 0 {
		t.Errorf("WebhookMessages = %+v, %v", list, err)
	}
	if due, err := s.DueWebhooks(ctx); err != nil || len(due) != 0 {
		t.Errorf("DueWebhooks = %v, %v", due, err)
	}
	if n, err := s.ForgetWebhookMessages(ctx, c.Now(), 10); n != 0 || err != nil {
		t.Errorf("ForgetWebhookMessages = %d, %v", n, err)
	}
	if n, err := s.ForgetWebhookMessages(ctx, c.advance(time.Hour), 10); n != 1 || err != nil {
		t.Errorf("ForgetWebhookMessages = %d, %v", n, err)
	}
}

// TestWebhooksOfATenantAreBounded: of messages that ended the newest are kept.
func TestWebhooksOfATenantAreBounded(t *testing.T) {
	s, c := fresh(t)
	if err := s.update(t.Context(), durable, func(t *tx) error {
		for i := range maxEndedWebhooks {
			m := WebhookMessage{ID: fmt.Sprintf("m%04d", i), Tenant: "acme"}
			if err := t.addWebhookMessage(m, c.advance(time.Microsecond)); err != nil {
				return err
			}
		}
		_, err := t.exec(`UPDATE webhook_messages SET state = 'delivered'`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"n1", "n2"} {
		c.advance(time.Second)
		if err := s.AddWebhookMessage(t.Context(), WebhookMessage{ID: id, Tenant: "acme"}); err != nil {
			t.Fatal(err)
		}
		if err := s.EndWebhookAttempt(t.Context(), WebhookMessage{ID: id, Tenant: "acme", State: WebhookDelivered}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := s.WebhookMessages(t.Context(), "acme", 1000, 0)
	rest, errRest := s.WebhookMessages(t.Context(), "acme", 1000, 1000)
	if err != nil || errRest != nil || len(list) != 1000 || len(rest) != 0 || list[0].ID != "n2" || list[999].ID != "m0002" {
		t.Errorf("%d and %d messages, %v, %v", len(list), len(rest), err, errRest)
	}
}

func TestWebhookSecrets(t *testing.T) {
	s, _ := fresh(t)
	for i, tt := range []struct {
		tenant, secret string
		replace        bool
		want           string
	}{
		{"acme", "one", false, "one"}, {"acme", "two", false, "one"}, {"beta", "three", false, "three"}, {"acme", "four", true, "four"}, {"acme", "five", false, "four"},
	} {
		if got, err := s.WebhookSecret(t.Context(), tt.tenant, []byte(tt.secret), tt.replace); err != nil || string(got) != tt.want {
			t.Errorf("%d: %q, %v, want %q", i, got, err, tt.want)
		}
	}
	if err := s.update(t.Context(), durable, func(t *tx) error {
		_, err := t.exec(`UPDATE webhook_secrets SET secret = (SELECT secret FROM webhook_secrets WHERE tenant = 'beta') WHERE tenant = 'acme'`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	_, err := s.WebhookSecret(t.Context(), "acme", nil, false)
	wantKind(t, "a secret of another tenant", err, errs.Internal)
}

// TestRunEndsWithItsMessage: the message about a run's end is there exactly when the run
// has ended, and once.
func TestRunEndsWithItsMessage(t *testing.T) {
	s, _ := fresh(t)
	ctx := t.Context()
	thread := conversation.Thread{UID: sandbox.NewUID(), ID: "t", Tenant: "acme"}
	if err := s.CreateConversation(ctx, thread); err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateRun(ctx, NewRun{Run: conversation.Run{Thread: thread.UID, ID: "r"}}); err != nil {
		t.Fatal(err)
	}
	for i, status := range []conversation.RunStatus{conversation.RunRunning, conversation.RunSuccess, conversation.RunSuccess} {
		err := s.EndRun(ctx, thread.UID, "r", func(r *conversation.Run, _ *conversation.Thread, _ bool) error {
			r.Status = status
			return nil
		}, WebhookMessage{ID: fmt.Sprint("m", i), Tenant: "acme"})
		if err != nil {
			t.Fatal(err)
		}
		if n, _, err := s.PendingWebhooks(ctx, "acme"); n != min(i, 1) || err != nil {
			t.Errorf("after %s: %d messages, %v", status, n, err)
		}
	}
}
