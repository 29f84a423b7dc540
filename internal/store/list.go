package store

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// Query selects sandboxes. The zero value selects all that are not destroyed.
type Query struct {
	Tenant   *string           // nil: any
	Labels   map[string]string // all must match; destroyed sandboxes have none
	States   []sandbox.State   // none: all but Destroyed
	External sandbox.External  // fields that are not empty must match
	Thread   string            // "": any
	After    string            // the cursor that the page before returned
	Limit    int               // 0: 100; at most 1000
}

const (
	defaultLimit = 100
	maxLimit     = 1000
)

func limit(n int) int {
	if n <= 0 {
		return defaultLimit
	}
	return min(n, maxLimit)
}

// Sandboxes returns a page of sandboxes, newest first, and the cursor of the
// next page, "" after the last. A page ends early when what it has is large. What is created while a client pages is not
// seen, nothing is seen twice.
func (s *Store) Sandboxes(ctx context.Context, q Query) (items []sandbox.Sandbox, next string, err error) {
	if q.After != "" {
		if _, err := sandbox.ParseUID(q.After); err != nil {
			return nil, "", errs.E(errs.Invalid, "malformed cursor").
				Hint("use next_cursor of the page before, unchanged").Because(err)
		}
	}
	n := limit(q.Limit)
	query, args := q.build(n + 1)
	rows, err := s.reads.Rows(ctx, query, args...)
	items, short, err := engine.CollectPage(rows, err, s.seal.scanSandbox, func(b sandbox.Sandbox) int64 { return b.Spec.Bytes() })
	if err != nil {
		return nil, "", s.fault(err)
	}
	if len(items) > n {
		items, short = items[:n], true
	}
	if short {
		next = string(items[len(items)-1].UID)
	}
	return items, next, nil
}

// build writes the statement so that one index gives the rows in order: a
// label's, a user's, a state's, a tenant's or that of all.
func (q Query) build(limit int) (string, []any) {
	var args []any
	arg := func(v any) string {
		args = append(args, v)
		return "$" + strconv.Itoa(len(args))
	}
	from := "sandboxes s"
	var where []string
	order := "s.uid"
	for i, name := range slices.Sorted(maps.Keys(q.Labels)) {
		match := "l.name = " + arg(name) + " AND l.value = " + arg(q.Labels[name])
		if i == 0 {
			from = "sandbox_labels l CROSS JOIN sandboxes s"
			where = append(where, "s.uid = l.box AND "+match)
			order = "l.box"
			continue
		}
		where = append(where, "EXISTS (SELECT 1 FROM sandbox_labels l WHERE l.box = s.uid AND "+match+")")
	}
	if !slices.Contains(q.States, sandbox.Destroyed) {
		// In these words, or the partial indexes do not count.
		where = append(where, "s.state <> 'destroyed'")
	}
	if len(q.States) > 0 {
		in := make([]string, len(q.States))
		for i, state := range q.States {
			in[i] = arg(state)
		}
		where = append(where, "s.state IN ("+strings.Join(in, ", ")+")")
	}
	if q.Tenant != nil {
		where = append(where, "s.tenant = "+arg(*q.Tenant))
	}
	for _, match := range []struct{ column, value string }{
		{"s.external_user_id", q.External.UserID},
		{"s.external_project_id", q.External.ProjectID},
		{"s.external_workspace_id", q.External.WorkspaceID},
	} {
		if match.value != "" {
			where = append(where, match.column+" = "+arg(match.value))
		}
	}
	if q.Thread != "" {
		// In these words too.
		where = append(where, "s.thread <> '' AND s.thread = "+arg(q.Thread))
	}
	if q.After != "" {
		where = append(where, order+" < "+arg(q.After))
	}
	query := "SELECT " + sandboxColumns + " FROM " + from + " JOIN sandbox_activity a ON a.box = s.uid"
	if len(where) > 0 {
		query += " WHERE " + strings.Join(where, " AND ")
	}
	return query + " ORDER BY " + order + " DESC LIMIT " + arg(limit), args
}

// CountSandboxes counts those in any of the given states.
func (s *Store) CountSandboxes(ctx context.Context, states ...sandbox.State) (int, error) {
	total := 0
	for _, state := range states {
		var n int
		// Destroyed rows are not in the index; counting them is slower.
		query := `SELECT COUNT(*) FROM sandboxes WHERE state = $1 AND state <> 'destroyed'`
		if state == sandbox.Destroyed {
			query = `SELECT COUNT(*) FROM sandboxes WHERE state = $1`
		}
		if err := s.reads.Row(ctx, query, state).Scan(&n); err != nil {
			return 0, s.fault(err)
		}
		total += n
	}
	return total, nil
}
