package store

import (
	"context"
	"time"

	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// Thread is what the store knows of a tenant's thread: it is there while it has
// a sandbox that is not failed or destroyed.
type Thread struct {
	Tenant       string
	Name         string
	Sandboxes    int
	Running      int
	CreatedAt    time.Time // of the oldest sandbox
	LastActiveAt time.Time
}

const selectThreads = `SELECT s.tenant, s.thread, COUNT(*), SUM(CASE s.state WHEN 'running' THEN 1 ELSE 0 END),
		MIN(s.created_at), MAX(a.last_active_at)
	FROM sandboxes s JOIN sandbox_activity a ON a.box = s.uid
	WHERE s.thread <> '' AND s.state <> 'destroyed' AND s.state <> 'failed'`

// Threads returns the threads of a tenant, by name.
func (s *Store) Threads(ctx context.Context, tenant string) ([]Thread, error) {
	rows, err := s.reads.Rows(ctx, selectThreads+` AND s.tenant = $1 GROUP BY s.tenant, s.thread ORDER BY s.tenant, s.thread`, tenant)
	threads, err := engine.Collect(rows, err, scanThread)
	return threads, s.fault(err)
}

// AllThreads returns the threads of all tenants.
func (s *Store) AllThreads(ctx context.Context) ([]Thread, error) {
	rows, err := s.reads.Rows(ctx, selectThreads+` GROUP BY s.tenant, s.thread`)
	threads, err := engine.Collect(rows, err, scanThread)
	return threads, s.fault(err)
}

func scanThread(r engine.Row) (t Thread, err error) {
	var created, active int64
	err = r.Scan(&t.Tenant, &t.Name, &t.Sandboxes, &t.Running, &created, &active)
	t.CreatedAt, t.LastActiveAt = column.FromMicros(created), column.FromMicros(active)
	return t, err
}
