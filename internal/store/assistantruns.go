package store

import (
	"context"

	"github.com/cubbyhq/cubby/internal/conversation"
)

// RunsOfAssistant returns runs of a tenant that are of an assistant, in any of its
// threads, without long inputs. At most n; at least one while there are any.
func (s *Store) RunsOfAssistant(ctx context.Context, tenant, assistant string, n int) ([]conversation.Run, error) {
	rows, err := s.rows(ctx, `SELECT `+runColumns+` FROM runs WHERE tenant = $1 AND assistant = $2 ORDER BY thread, seq LIMIT $3`, tenant, assistant, n)
	list, err := collect(rows, err, scanRunOfMany)
	return list, s.fault(err)
}
