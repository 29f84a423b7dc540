package core

import (
	"context"
)

// ChargeRead counts a file that a door reads whole against the caller's memory
// until its request has ended.
func (s *Service) ChargeRead(ctx context.Context, bytes int64) error {
	return s.budget.ChargeOutput(ctx, bytes)
}
