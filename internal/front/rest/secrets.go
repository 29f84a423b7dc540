package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
)

// Secret is a secret without its value, which no answer has.
type Secret struct {
	Name      string    `json:"name"`
	Tenant    string    `json:"tenant_id" doc:"Empty: of sandboxes that belong to no tenant."`
	UpdatedAt time.Time `json:"updated_at" doc:"When its value was set."`
}

func secretJSON(s store.Secret) Secret {
	return Secret{Name: s.Name, Tenant: s.Tenant, UpdatedAt: s.UpdatedAt.UTC()}
}

// SecretList is the secrets of a tenant.
type SecretList struct {
	Secrets []Secret `json:"secrets" nullable:"false"`
}

// SecretsInput names a tenant whose secrets are meant.
type SecretsInput struct {
	Tenant string `query:"tenant_id" doc:"Default: that of sandboxes that belong to no tenant."`
}

// SecretInput names a secret.
type SecretInput struct {
	SecretsInput
	Name string `path:"name" doc:"1 to 128 of A-Z a-z 0-9 _, not beginning with a digit: it becomes the name of an environment variable."`
}

// SecretValue is what a secret is set to.
type SecretValue struct {
	Value string `json:"value" doc:"1 byte to 32 KiB of text without NUL. No answer has it."`
}

func (d *door) secretRoutes() {
	const list, one = "/v1/secrets", "/v1/secrets/{name}"
	const whose = " For tokens of no tenant: others get 403."
	register(d, operation{
		id: "list-secrets", method: http.MethodGet, path: list, tag: "secrets",
		summary:     "List the secrets of a tenant, without their values",
		description: "By name. 500 when one of them cannot be opened: the daemon's key file is not the one that it was set with." + whose,
	}, func(ctx context.Context, in *SecretsInput) (*struct{ Body SecretList }, error) {
		all, err := d.Core.Secrets().List(ctx, in.Tenant)
		if err != nil {
			return nil, err
		}
		out := SecretList{Secrets: make([]Secret, len(all))}
		for i, s := range all {
			out.Secrets[i] = secretJSON(s)
		}
		return &struct{ Body SecretList }{out}, nil
	})
	register(d, operation{
		id: "set-secret", method: http.MethodPut, path: one, tag: "secrets",
		summary:     "Set a secret, or replace its value",
		description: "The value is kept sealed. A tenant has at most 100 secrets." + whose,
		body:        6*sandbox.MaxSecretValue + 1024, // every byte may be escaped
	}, func(ctx context.Context, in *struct {
		SecretInput
		Body SecretValue
	},
	) (*struct{ Body Secret }, error) {
		s, err := d.Core.Secrets().Set(ctx, in.Tenant, in.Name, in.Body.Value)
		if err != nil {
			return nil, err
		}
		return &struct{ Body Secret }{secretJSON(s)}, nil
	})
	register(d, operation{
		id: "remove-secret", method: http.MethodDelete, path: one, tag: "secrets", status: http.StatusNoContent,
		summary: "Remove a secret", description: "404 when it is not set." + whose,
	}, func(ctx context.Context, in *SecretInput) (*struct{}, error) {
		return nil, d.Core.Secrets().Remove(ctx, in.Tenant, in.Name)
	})
}
