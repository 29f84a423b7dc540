package client_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/client"
)

func TestSecretRequests(t *testing.T) {
	type m = map[string]any
	const one = `{"name":"API_KEY","tenant_id":"acme","updated_at":"2026-01-02T03:04:05Z"}`
	want := client.Secret{Name: "API_KEY", TenantID: "acme", UpdatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	same := func(s client.Secret, err error) error {
		if err == nil && s != want {
			t.Errorf("got %+v, want %+v", s, want)
		}
		return err
	}
	testRequests(t, []requestTest{
		{"list", func(ctx context.Context, c *client.Client) error {
			list, err := c.Secrets(ctx, "acme")
			if err == nil && len(list) != 1 {
				t.Errorf("got %+v", list)
				return nil
			}
			return same(list[0], err)
		}, 200, `{"secrets":[` + one + `]}`, request{"GET", "/v1/secrets", "tenant_id=acme", nil}},
		{"list of no tenant", func(ctx context.Context, c *client.Client) error {
			_, err := c.Secrets(ctx, "")
			return err
		}, 200, `{"secrets":[]}`, request{"GET", "/v1/secrets", "", nil}},
		{"set", func(ctx context.Context, c *client.Client) error {
			return same(c.SetSecret(ctx, "acme", "API_KEY", "v\n"))
		},
			200, one, request{"PUT", "/v1/secrets/API_KEY", "tenant_id=acme", m{"value": "v\n"}}},
		{"remove", func(ctx context.Context, c *client.Client) error { return c.RemoveSecret(ctx, "", "../x?y") },
			204, "", request{"DELETE", "/v1/secrets/..%2Fx%3Fy", "", nil}},
	})
}

// TestSecretThatJSONWouldChange: it is refused here, and the error does not
// repeat it.
func TestSecretThatJSONWouldChange(t *testing.T) {
	c := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was made") })
	_, err := c.SetSecret(t.Context(), "", "KEY", "hush\xff")
	if !errors.Is(err, client.InvalidRequest) || strings.Contains(err.Error(), "hush") {
		t.Errorf("SetSecret = %v", err)
	}
}
