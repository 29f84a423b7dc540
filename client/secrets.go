package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
	"unicode/utf8"
)

// Secret is a secret of a tenant without its value, which the daemon gives to
// nobody but the tenant's tasks.
type Secret struct {
	Name      string    `json:"name"`
	TenantID  string    `json:"tenant_id"` // "": of sandboxes that belong to no tenant
	UpdatedAt time.Time `json:"updated_at"`
}

func secretQuery(tenant string) url.Values {
	if tenant == "" {
		return nil
	}
	return url.Values{"tenant_id": {tenant}}
}

func secretPath(name string) string { return "/v1/secrets/" + url.PathEscape(name) }

// Secrets lists the secrets of a tenant, by name; "" is the tenant of sandboxes
// that belong to none. A token of a tenant gets [Forbidden], here and for all
// that is done with secrets.
func (c *Client) Secrets(ctx context.Context, tenant string) ([]Secret, error) {
	var answer struct {
		Secrets []Secret `json:"secrets"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: "/v1/secrets", query: secretQuery(tenant)}, &answer)
	return answer.Secrets, err
}

// SetSecret sets a secret of a tenant, or replaces its value. The name is that of
// an environment variable, the value 1 byte to 32 KiB of UTF-8 text without NUL.
func (c *Client) SetSecret(ctx context.Context, tenant, name, value string) (Secret, error) {
	var s Secret
	if !utf8.ValidString(value) { // JSON would change it
		return s, &Error{Code: InvalidRequest, Message: "value: not UTF-8"}
	}
	body := map[string]string{"value": value}
	return s, c.do(ctx, call{method: http.MethodPut, path: secretPath(name), query: secretQuery(tenant), json: body}, &s)
}

// RemoveSecret removes a secret of a tenant; [NotFound] when it is not set.
func (c *Client) RemoveSecret(ctx context.Context, tenant, name string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: secretPath(name), query: secretQuery(tenant)}, nil)
}
