package core

import (
	"context"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// ChargeRead counts a file that a door reads whole against the caller's memory
// until its request has ended.
func (s *Service) ChargeRead(ctx context.Context, bytes int64) error {
	return s.budget.ChargeOutput(ctx, bytes)
}

// chargeOutput counts what a result will hold of an exec's output, before it is
// read.
func (s *Service) chargeOutput(ctx context.Context, x sandbox.Exec, caps OutputCaps) error {
	bytes, err := s.logBytes(x)
	if err != nil || caps.Hold > 0 && bytes > caps.Hold {
		return err // it is read when it leaves
	}
	most := int64(0)
	for _, n := range []int64{caps.Stdout, caps.Stderr, caps.Rich} {
		if n < 0 {
			n = bytes
		}
		most += n
	}
	return s.budget.ChargeOutput(ctx, min(bytes, most))
}

// logBytes is the size of an exec's log; 0 when nothing is counted.
func (s *Service) logBytes(x sandbox.Exec) (int64, error) {
	if !s.budget.Counts() {
		return 0, nil
	}
	return s.cfg.Journals.LogUsage(x.Box, x.Seq)
}
