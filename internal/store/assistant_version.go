package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store/canonical"
	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// The bounds of an assistant's versions: the oldest go first, and the one in use stays.
const (
	maxVersions      = 100
	maxVersionsBytes = 8 << 20
)

const versionColumns = `tenant, id, graph_id, name, description, version, config, context, metadata, created_at`

// addVersion keeps an assistant as it is as a version of it; values are those of
// assistantColumns.
func (t *tx) addVersion(a conversation.Assistant, values []any) error {
	values = append(append([]any{}, values[:9]...), column.Micros(a.UpdatedAt))
	if _, err := t.exec(`INSERT INTO assistant_versions (`+versionColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, values...); err != nil {
		return err
	}
	_, err := t.exec(dropOldVersions, a.Tenant, a.ID, a.Version, maxVersions, maxVersionsBytes)
	return err
}

const dropOldVersions = `DELETE FROM assistant_versions WHERE tenant = $1 AND id = $2 AND version <> $3 AND version IN (
		SELECT version FROM (
			SELECT version, ROW_NUMBER() OVER newest AS nth, SUM(LENGTH(config) + LENGTH(context) + LENGTH(metadata)) OVER newest AS bytes
			FROM assistant_versions WHERE tenant = $1 AND id = $2 WINDOW newest AS (ORDER BY version DESC)) v
		WHERE nth > $4 OR bytes > $5)`

// newestVersion is the highest number that a version of an assistant has.
func (t *tx) newestVersion(tenant, id string) (n int, err error) {
	err = t.row(`SELECT COALESCE(MAX(version), 0) FROM assistant_versions WHERE tenant = $1 AND id = $2`, tenant, id).Scan(&n)
	return n, err
}

// AssistantVersions returns the keys of the versions of an assistant whose metadata has
// all that is wanted, newest first.
func (s *Store) AssistantVersions(ctx context.Context, tenant, id string, metadata map[string]json.RawMessage) (list []Key, err error) {
	want, err := canonical.Entries(metadata, canonical.MaxMatch)
	if err != nil {
		return nil, err
	}
	rows, err := s.reads.Rows(ctx, `SELECT version, octet_length(description) + octet_length(config)
		+ octet_length(context) + octet_length(metadata), metadata FROM assistant_versions WHERE tenant = $1 AND id = $2 ORDER BY version DESC`, tenant, id)
	_, err = engine.Collect(rows, err, func(r engine.Row) (_ struct{}, err error) {
		k := Key{ID: id}
		var text sql.RawBytes // of the row at hand
		var about map[string]json.RawMessage
		if err := r.Scan(&k.Version, &k.Bytes, &text); err != nil {
			return struct{}{}, err
		}
		if err := column.Read(text, &about); err != nil {
			return struct{}{}, err
		}
		matches, err := canonical.Has(about, want)
		if matches {
			list = append(list, k)
		}
		return struct{}{}, err
	})
	return list, s.fault(err)
}

const selectVersion = `SELECT ` + versionColumns + `, created_at FROM assistant_versions WHERE tenant = $1 AND id = $2 AND version = $3`

// AssistantVersion returns an assistant as it was. NotFound when it has no such version.
func (s *Store) AssistantVersion(ctx context.Context, tenant, id string, version int) (conversation.Assistant, error) {
	a, err := scanAssistant(s.reads.Row(ctx, selectVersion, tenant, id, version))
	return a, s.fault(err)
}

// UseAssistantVersion makes a version of an assistant the one in use. NotFound when there
// is no such assistant or version.
func (s *Store) UseAssistantVersion(ctx context.Context, tenant, id string, version int) (a conversation.Assistant, err error) {
	err = s.update(ctx, durable, func(t *tx) error {
		was, err := scanAssistant(t.row(`SELECT `+assistantColumns+` FROM assistants WHERE tenant = $1 AND id = $2`, tenant, id))
		if err != nil {
			return err
		}
		a, err = scanAssistant(t.row(selectVersion, tenant, id, version))
		if errors.Is(err, errs.NotFound) {
			err = errs.E(errs.NotFound, "no such version")
		}
		if err != nil {
			return err
		}
		a.CreatedAt, a.UpdatedAt = was.CreatedAt, column.FromMicros(column.Micros(s.now()))
		values, err := assistantValues(a)
		if err != nil {
			return err
		}
		return t.setAssistant(values)
	})
	return a, err
}

// setAssistant changes an assistant; values are those of assistantColumns.
func (t *tx) setAssistant(values []any) error {
	_, err := t.exec(`UPDATE assistants SET graph_id = $3, name = $4, description = $5, version = $6, config = $7, context = $8,
			metadata = $9, created_at = $10, updated_at = $11 WHERE tenant = $1 AND id = $2`, values...)
	return err
}
