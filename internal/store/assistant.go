package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store/canonical"
	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// maxAssistants bounds those of a tenant: a query looks at them all.
const maxAssistants = 1000

const assistantColumns = `tenant, id, graph_id, name, description, version, config, context, metadata, created_at, updated_at`

func noSuchAssistant() error { return errs.E(errs.NotFound, "no such assistant") }

// CreateAssistant adds an assistant; zero times become now. Conflict when its tenant
// has one with its id, OverQuota when it has too many.
func (s *Store) CreateAssistant(ctx context.Context, a conversation.Assistant) error {
	now := s.now()
	a.CreatedAt, a.UpdatedAt = orTime(a.CreatedAt, now), orTime(a.UpdatedAt, now)
	values, err := assistantValues(a)
	if err != nil {
		return err
	}
	err = s.update(ctx, durable, func(t *tx) error {
		var n int
		if err := t.row(`SELECT COUNT(*) FROM assistants WHERE tenant = $1`, a.Tenant).Scan(&n); err != nil {
			return err
		}
		if n >= maxAssistants {
			return errs.E(errs.OverQuota, "there are all %d assistants that there may be", maxAssistants).Hint("remove one first")
		}
		_, err := t.exec(`INSERT INTO assistants (`+assistantColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`, values...)
		if err != nil {
			return err
		}
		return t.addVersion(a, values)
	})
	if errors.Is(err, errs.Conflict) {
		return errs.E(errs.Conflict, "the assistant exists already").Because(err)
	}
	return err
}

// Assistant returns an assistant of a tenant; NotFound when it has none with the id.
func (s *Store) Assistant(ctx context.Context, tenant, id string) (conversation.Assistant, error) {
	a, err := scanAssistant(s.reads.Row(ctx, `SELECT `+assistantColumns+` FROM assistants WHERE tenant = $1 AND id = $2`, tenant, id))
	return a, s.fault(err)
}

// AssistantQuery selects assistants of a tenant; the zero value but for it selects
// all.
type AssistantQuery struct {
	Tenant     string
	GraphID    string                     // "": any
	Name       string                     // what the name contains, in whatever case
	Metadata   map[string]json.RawMessage // all must be equal
	SortBy     string                     // assistant_id, graph_id, name, created_at, updated_at; else created_at
	Descending bool
	Limit      int // 0: 100; at most 1000
	Offset     int
}

// Assistants returns the keys of those that a query selects, ties by id, and how many
// there are without its bounds.
func (s *Store) Assistants(ctx context.Context, q AssistantQuery) (page []Key, total int, err error) {
	want, err := canonical.Entries(q.Metadata, canonical.MaxMatch)
	if err != nil {
		return nil, 0, err
	}
	// Metadata is large, and one at a time in memory.
	about := `''`
	if len(want) > 0 {
		about = `metadata`
	}
	rows, err := s.reads.Rows(ctx, `SELECT id, graph_id, name, created_at, updated_at, octet_length(description) + octet_length(config)
		+ octet_length(context) + octet_length(metadata), `+about+` FROM assistants WHERE tenant = $1 ORDER BY id`, q.Tenant)
	all, err := engine.Collect(rows, err, func(r engine.Row) (a listedAssistant, err error) {
		var metadata sql.RawBytes // of the row at hand
		if err := r.Scan(&a.ID, &a.graph, &a.name, &a.created, &a.updated, &a.Bytes, &metadata); err != nil {
			return a, err
		}
		a.selected, err = q.selects(a, metadata, want)
		return a, err
	})
	if err != nil {
		return nil, 0, s.fault(err)
	}
	all = slices.DeleteFunc(all, func(a listedAssistant) bool { return !a.selected })
	slices.SortStableFunc(all, func(a, b listedAssistant) int {
		n := q.compare(a, b)
		if q.Descending {
			n = -n
		}
		return n
	})
	offset := min(max(q.Offset, 0), len(all))
	for _, a := range all[offset:min(offset+limit(q.Limit), len(all))] {
		page = append(page, a.Key)
	}
	return page, len(all), nil
}

// listedAssistant is what one is found and sorted by.
type listedAssistant struct {
	Key

	graph, name      string
	created, updated int64
	selected         bool
}

func (q AssistantQuery) selects(a listedAssistant, metadata []byte, want []canonical.Entry) (bool, error) {
	if q.GraphID != "" && a.graph != q.GraphID || !strings.Contains(strings.ToLower(a.name), strings.ToLower(q.Name)) {
		return false, nil
	}
	if len(want) == 0 {
		return true, nil
	}
	var about map[string]json.RawMessage
	if err := column.Read(metadata, &about); err != nil {
		return false, err
	}
	return canonical.Has(about, want)
}

func (q AssistantQuery) compare(a, b listedAssistant) int {
	id := cmp.Compare(a.ID, b.ID)
	switch q.SortBy {
	case "assistant_id":
		return id
	case "graph_id":
		return cmp.Or(cmp.Compare(a.graph, b.graph), id)
	case "name":
		return cmp.Or(cmp.Compare(a.name, b.name), id)
	case "updated_at":
		return cmp.Or(cmp.Compare(a.updated, b.updated), id)
	}
	return cmp.Or(cmp.Compare(a.created, b.created), id)
}

// ChangeAssistant changes an assistant, which gets the next version; UpdatedAt is now
// unless change sets it. What names it, and its making, stays.
func (s *Store) ChangeAssistant(ctx context.Context, tenant, id string, change func(*conversation.Assistant) error) (changed conversation.Assistant, err error) {
	err = s.update(ctx, durable, func(t *tx) error {
		was, err := scanAssistant(t.row(`SELECT `+assistantColumns+` FROM assistants WHERE tenant = $1 AND id = $2`, tenant, id))
		if err != nil {
			return err
		}
		changed = was
		changed.UpdatedAt = column.FromMicros(column.Micros(s.now()))
		if err := change(&changed); err != nil {
			return err
		}
		changed.Tenant, changed.ID, changed.CreatedAt = was.Tenant, was.ID, was.CreatedAt
		newest, err := t.newestVersion(tenant, id)
		if err != nil {
			return err
		}
		changed.Version = newest + 1
		values, err := assistantValues(changed)
		if err != nil {
			return err
		}
		if err := t.setAssistant(values); err != nil {
			return err
		}
		return t.addVersion(changed, values)
	})
	return changed, err
}

// RemoveAssistant forgets an assistant, its versions and its crons. NotFound when there is none.
func (s *Store) RemoveAssistant(ctx context.Context, tenant, id string) error {
	return s.update(ctx, durable, func(t *tx) error {
		n, err := t.exec(`DELETE FROM assistants WHERE tenant = $1 AND id = $2`, tenant, id)
		if err == nil && n == 0 {
			err = noSuchAssistant()
		}
		return err
	})
}

// assistantValues are those of assistantColumns.
func assistantValues(a conversation.Assistant) ([]any, error) {
	if _, err := canonical.Entries(a.Metadata, canonical.MaxMetadata); err != nil {
		return nil, err
	}
	config, errConfig := column.Raw(a.Config)
	about, errContext := column.Raw(a.Context)
	metadata, err := column.Metadata(a.Metadata)
	if err := errors.Join(errConfig, errContext, err); err != nil {
		return nil, err
	}
	return []any{
		a.Tenant, a.ID, a.GraphID, a.Name, a.Description, a.Version, config, about, metadata, column.Micros(a.CreatedAt), column.Micros(a.UpdatedAt),
	}, nil
}

func scanAssistant(r engine.Row) (a conversation.Assistant, err error) {
	var config, about, metadata string
	var created, updated int64
	err = r.Scan(&a.Tenant, &a.ID, &a.GraphID, &a.Name, &a.Description, &a.Version, &config, &about, &metadata, &created, &updated)
	if errors.Is(err, sql.ErrNoRows) {
		return a, noSuchAssistant()
	}
	if err != nil {
		return a, err
	}
	a.Config, a.Context = column.ReadRaw(config), column.ReadRaw(about)
	a.CreatedAt, a.UpdatedAt = column.FromMicros(created), column.FromMicros(updated)
	return a, column.Read([]byte(metadata), &a.Metadata)
}
