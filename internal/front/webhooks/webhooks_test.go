package webhooks_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/front/webhooks"
	"github.com/cubbyhq/cubby/internal/seal"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
	"github.com/cubbyhq/cubby/internal/webhook"
)

// TestWebhooks: a tenant makes itself a new secret and sees its own messages, and no
// other's.
func TestWebhooks(t *testing.T) {
	key, err := seal.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "db"), Seal: key})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, m := range []store.WebhookMessage{
		{ID: "m1", Tenant: "acme", Kind: "run.ended", URL: "https://example.com/", Subject: "/threads/t/runs/r", Body: []byte(`{}`)}, {ID: "m2", Tenant: "beta"},
	} {
		if err := db.AddWebhookMessage(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	api := httpapi.New(httpapi.Config{Metrics: telemetry.NewMetrics("test"), Log: slog.New(slog.DiscardHandler), Life: t.Context()},
		webhooks.Register(webhook.New(webhook.Config{Store: db})))
	do := func(method, path string) (int, string) {
		t.Helper()
		r := httptest.NewRequestWithContext(auth.WithPrincipal(t.Context(), auth.Principal{Name: "ann", Tenant: "acme"}), method, path, nil)
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		text, err := io.ReadAll(w.Result().Body)
		if err != nil {
			t.Fatal(err)
		}
		return w.Code, string(text)
	}
	_, first := do("POST", "/v1/webhooks/secret")
	_, second := do("POST", "/v1/webhooks/secret")
	if first == second || !strings.HasPrefix(second, `{"secret":"whsec_`) {
		t.Errorf("secrets %s and %s", first, second)
	}
	var list struct{ Messages []map[string]any }
	status, text := do("GET", "/v1/webhooks/messages")
	if err := json.Unmarshal([]byte(text), &list); err != nil || status != http.StatusOK || len(list.Messages) != 1 {
		t.Fatalf("messages %s, %v", text, err)
	}
	if m := list.Messages[0]; m["id"] != "m1" || m["state"] != "pending" || m["subject"] != "/threads/t/runs/r" || m["next_at"] == nil || m["body"] != nil {
		t.Errorf("message %v", m)
	}
	if _, text := do("GET", "/v1/webhooks/messages?offset=1"); strings.TrimSpace(text) != `{"messages":[]}` {
		t.Errorf("the next page is %s", text)
	}
	for _, query := range []string{"limit=0", "limit=1001", "offset=-1", "limit=x"} {
		if status, text := do("GET", "/v1/webhooks/messages?"+query); status != http.StatusBadRequest {
			t.Errorf("%s = %d %s", query, status, text)
		}
	}
}
