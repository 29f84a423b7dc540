package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// Secret is a secret of a tenant without its value. The tenant "" is that of
// sandboxes of none.
type Secret struct {
	Tenant    string
	Name      string
	UpdatedAt time.Time
}

// secretPlace is what a value is sealed for: a row that is copied to another
// tenant or name cannot be opened. Neither has a "/".
func secretPlace(tenant, name string) string { return "secret " + tenant + "/" + name }

// SetSecret stores a value, in place of the one that there was. OverQuota when
// it would be more than most secrets of the tenant.
func (s *Store) SetSecret(ctx context.Context, tenant, name, value string, most int) (Secret, error) {
	set := Secret{Tenant: tenant, Name: name}
	err := s.update(ctx, durable, func(t *tx) error {
		var others int
		if err := t.row(`SELECT COUNT(*) FROM secrets WHERE tenant = $1 AND name <> $2`, tenant, name).Scan(&others); err != nil {
			return err
		}
		if others >= most {
			return errs.E(errs.OverQuota, "the tenant has all %d secrets that it may have", most).Hint("remove one first")
		}
		now := column.Micros(s.now())
		set.UpdatedAt = column.FromMicros(now)
		_, err := t.exec(`INSERT INTO secrets (tenant, name, value, updated_at) VALUES ($1, $2, $3, $4)
				ON CONFLICT (tenant, name) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at`,
			tenant, name, t.seal.Seal(secretPlace(tenant, name), []byte(value)), now)
		return err
	})
	return set, err
}

// RemoveSecret forgets a secret, also one that cannot be opened. NotFound when
// it is not set.
func (s *Store) RemoveSecret(ctx context.Context, tenant, name string) error {
	return s.update(ctx, durable, func(t *tx) error {
		n, err := t.exec(`DELETE FROM secrets WHERE tenant = $1 AND name = $2`, tenant, name)
		if err == nil && n == 0 {
			err = errs.E(errs.NotFound, "no such secret")
		}
		return err
	})
}

// Secrets lists the secrets of a tenant, by name. It opens them all: Internal,
// with the name, when one cannot be.
func (s *Store) Secrets(ctx context.Context, tenant string) ([]Secret, error) {
	rows, err := s.reads.Rows(ctx, `SELECT name, value, updated_at FROM secrets WHERE tenant = $1 ORDER BY name`, tenant)
	list, err := engine.Collect(rows, err, func(r engine.Row) (Secret, error) {
		set := Secret{Tenant: tenant}
		var sealed string
		var updated int64
		if err := r.Scan(&set.Name, &sealed, &updated); err != nil {
			return set, err
		}
		set.UpdatedAt = column.FromMicros(updated)
		_, err := s.seal.openSecret(tenant, set.Name, sealed)
		return set, err
	})
	return list, s.fault(err)
}

// SecretValues opens the secrets of a tenant that have one of some names. Names
// that are not set are left out; one that cannot be opened is Internal.
func (s *Store) SecretValues(ctx context.Context, tenant string, names []string) (map[string]string, error) {
	values := make(map[string]string, len(names))
	for _, name := range names {
		var sealed string
		err := s.reads.Row(ctx, `SELECT value FROM secrets WHERE tenant = $1 AND name = $2`, tenant, name).Scan(&sealed)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err == nil {
			values[name], err = s.seal.openSecret(tenant, name, sealed)
		}
		if err != nil {
			return nil, s.fault(err)
		}
	}
	return values, nil
}

func (k sealer) openSecret(tenant, name, sealed string) (string, error) {
	value, err := k.Open(secretPlace(tenant, name), sealed)
	if err != nil {
		return "", errs.E(errs.Internal, "the secret %s cannot be opened", name).
			Hint("the key file does not belong to this database; restore it, or set the secret again").Because(err)
	}
	return string(value), nil
}
