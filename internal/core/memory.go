package core

import (
	"context"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	// What a byte takes before it has left: of a list, of which there are what
	// was read and the buffer that its answer grows in; of output with the
	// copies on its way.
	listWeight   = 3
	outputWeight = 3
	// cellStep is the piece in which an execution is charged.
	cellStep = 64 << 10
	// heldAnyway is what every answer may hold without being counted.
	heldAnyway = 16 << 10
)

// charge counts what a list holds against the caller's memory until its
// request has ended.
func (s *Service) charge(ctx context.Context, bytes int64) error {
	if s.cfg.Memory == nil || bytes <= heldAnyway {
		return nil
	}
	return s.cfg.Memory.Charge(ctx, bytes*listWeight)
}

// ChargeRead counts a file that a door reads whole against the caller's memory
// until its request has ended.
func (s *Service) ChargeRead(ctx context.Context, bytes int64) error {
	if s.cfg.Memory == nil || bytes <= heldAnyway {
		return nil
	}
	return s.cfg.Memory.Charge(ctx, bytes*outputWeight)
}

// hold is charge until release.
func (s *Service) hold(ctx context.Context, bytes int64) (release func(), err error) {
	if s.cfg.Memory == nil || bytes <= heldAnyway {
		return func() {}, nil
	}
	return s.cfg.Memory.Hold(ctx, bytes*listWeight)
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
	return s.ChargeRead(ctx, min(bytes, most))
}

// chargeCell counts what an execution holds while its log is read: of long texts
// only the beginning, of rich output all that is shown. It is called before each
// piece of the log with what has been charged, and returns what is then.
func (s *Service) chargeCell(ctx context.Context, o *cellOutput, piece sandbox.Output, charged int64) (int64, error) {
	more := o.held() + int64(len(piece.Data)) - charged
	if s.cfg.Memory == nil || o.brief || more <= heldAnyway {
		return charged, nil
	}
	more += cellStep
	return charged + more, s.cfg.Memory.Charge(ctx, more*outputWeight)
}

// logBytes is the size of an exec's log; 0 when nothing is counted.
func (s *Service) logBytes(x sandbox.Exec) (int64, error) {
	if s.cfg.Memory == nil {
		return 0, nil
	}
	return s.cfg.Journals.LogUsage(x.Box, x.Seq)
}

func eventBytes(events []sandbox.Event) (n int64) {
	for _, e := range events {
		n += e.Bytes()
	}
	return n
}
