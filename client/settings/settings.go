// Package settings is the Go client of the settings of cubby's agent: which models it
// asks, with whose keys, and what it may do. A client with a token of a tenant has
// the tenant's settings, any other one the operator's.
//
//	s := settings.New(client.FromEnv())
//	_, err := s.Change(ctx, settings.Patch{
//		"model":     "openai/gpt-4o",
//		"providers": settings.Patch{"openai": settings.Patch{"key": key}},
//	})
//
// No answer has a key. Errors are those of package client.
package settings

import (
	"context"
	"net/http"
	"net/url"

	"github.com/cubbyhq/cubby/client"
)

const path = "/v1/settings"

// Settings are what is set, and what holds. A nil field, here and below, is not set.
type Settings struct {
	TenantID       string              `json:"tenant_id"` // "": the operator's
	Model          *string             `json:"model"`     // provider/model
	Providers      map[string]Provider `json:"providers"`
	SupportsVision *string             `json:"supports_vision"` // auto, true or false
	MaxIterations  *int                `json:"max_iterations"`
	TokenBudget    *int64              `json:"token_budget"`
	Approval       map[string]string   `json:"approval"` // allow, ask or deny by tool; "*" is all others
	Effective      Effective           `json:"effective"`
}

// Provider is a way to models, without its key.
type Provider struct {
	BaseURL *string `json:"base_url"`
	KeyHint *string `json:"key_hint"`
}

// Effective is what holds: what the tenant has set, below that what the operator has,
// and then the daemon's environment.
type Effective struct {
	Model          *string             `json:"model"`
	ModelSource    *string             `json:"model_source"` // tenant, operator or environment
	Providers      map[string]Endpoint `json:"providers"`
	SupportsVision string              `json:"supports_vision"`
	MaxIterations  *int                `json:"max_iterations"`
	TokenBudget    *int64              `json:"token_budget"`
	Approval       map[string]string   `json:"approval"`
}

// Endpoint is a provider as it is asked.
type Endpoint struct {
	BaseURL       *string `json:"base_url"`
	BaseURLSource *string `json:"base_url_source"`
	KeyHint       *string `json:"key_hint"`
	KeySource     *string `json:"key_source"`
}

// Patch is a JSON merge patch of settings, with the names of their JSON; of a
// provider base_url and key. What it leaves out stays, and nil removes.
type Patch map[string]any

// Model is a model of a provider.
type Model struct {
	ID       string `json:"id"` // provider/model
	Provider string `json:"provider"`
	Name     string `json:"name"`    // for people; "": as its ID
	Context  int    `json:"context"` // in tokens; 0: unknown
}

// Models are those of all providers. Errors says why a provider has none.
type Models struct {
	Models []Model           `json:"models"`
	Errors map[string]string `json:"errors"`
}

// Client reads and changes the settings at one daemon. It is safe for concurrent use.
type Client struct{ c *client.Client }

// New returns a client of the settings at c's daemon.
func New(c *client.Client) *Client { return &Client{c} }

// Get returns the settings.
func (s *Client) Get(ctx context.Context) (out Settings, err error) {
	return out, s.c.Do(ctx, client.Request{Method: http.MethodGet, Path: path}, &out)
}

// Change changes some of the settings, and returns all.
func (s *Client) Change(ctx context.Context, p Patch) (out Settings, err error) {
	return out, s.c.Do(ctx, client.Request{Method: http.MethodPatch, Path: path, JSON: p}, &out)
}

// Replace replaces the settings: what p leaves out is removed, but a provider that it
// names keeps its key unless it has another one.
func (s *Client) Replace(ctx context.Context, p Patch) (out Settings, err error) {
	return out, s.c.Do(ctx, client.Request{Method: http.MethodPut, Path: path, JSON: p}, &out)
}

// Clear removes all settings, also such as cannot be read any more.
func (s *Client) Clear(ctx context.Context) error {
	return s.c.Do(ctx, client.Request{Method: http.MethodDelete, Path: path}, nil)
}

// Models asks a provider that is set, or with "" all, which models there are.
func (s *Client) Models(ctx context.Context, provider string) (out Models, err error) {
	r := client.Request{Method: http.MethodGet, Path: path + "/models"}
	if provider != "" {
		r.Query = url.Values{"provider": {provider}}
	}
	return out, s.c.Do(ctx, r, &out)
}

// Test has a model answer something short, and returns which one it was: with "" the
// one that is set.
func (s *Client) Test(ctx context.Context, model string) (string, error) {
	body := map[string]string{}
	if model != "" {
		body["model"] = model
	}
	var out struct {
		Model string `json:"model"`
	}
	err := s.c.Do(ctx, client.Request{Method: http.MethodPost, Path: path + "/test", JSON: body}, &out)
	return out.Model, err
}
