package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// settingsPlace is what the settings of a tenant are sealed for.
func settingsPlace(tenant string) string { return "agent settings " + tenant }

const selectSettings = `SELECT document FROM agent_settings WHERE tenant = $1`

// AgentSettings returns the settings of the agent that a tenant has, as they were
// given to [Store.ChangeAgentSettings]; the tenant "" is the operator. Nil when it
// has none, Internal when they cannot be opened.
func (s *Store) AgentSettings(ctx context.Context, tenant string) ([]byte, error) {
	document, err := s.seal.scanSettings(tenant, s.reads.Row(ctx, selectSettings, tenant))
	return document, s.fault(err)
}

// ChangeAgentSettings replaces the settings of a tenant by what change makes of them;
// nil is none. change may be called again.
func (s *Store) ChangeAgentSettings(ctx context.Context, tenant string, change func(document []byte) ([]byte, error)) error {
	return s.update(ctx, durable, func(t *tx) error {
		was, err := t.seal.scanSettings(tenant, t.row(selectSettings, tenant))
		if err != nil {
			return err
		}
		document, err := change(was)
		if err != nil {
			return err
		}
		if document == nil {
			_, err := t.exec(`DELETE FROM agent_settings WHERE tenant = $1`, tenant)
			return err
		}
		_, err = t.exec(`INSERT INTO agent_settings (tenant, document, updated_at) VALUES ($1, $2, $3)
				ON CONFLICT (tenant) DO UPDATE SET document = excluded.document, updated_at = excluded.updated_at`,
			tenant, t.seal.Seal(settingsPlace(tenant), document), column.Micros(s.now()))
		return err
	})
}

// RemoveAgentSettings forgets the settings of a tenant, also such as cannot be
// opened. There need not be any.
func (s *Store) RemoveAgentSettings(ctx context.Context, tenant string) error {
	return s.update(ctx, durable, func(t *tx) error {
		_, err := t.exec(`DELETE FROM agent_settings WHERE tenant = $1`, tenant)
		return err
	})
}

func (k sealer) scanSettings(tenant string, r engine.Row) ([]byte, error) {
	var sealed string
	if err := r.Scan(&sealed); err != nil {
		if errors.Is(err, sql.ErrNoRows) {
			return nil, nil
		}
		return nil, err
	}
	document, err := k.Open(settingsPlace(tenant), sealed)
	if err != nil {
		return nil, errs.E(errs.Internal, "the settings of the agent cannot be opened").
			Hint("the key file does not belong to this database; restore it, or remove the settings").Because(err)
	}
	return document, nil
}
