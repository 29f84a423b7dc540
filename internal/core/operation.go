package core

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/cubbyhq/cubby/internal/core/cell"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// operation is what core knows of an exec that is more than a plain command.
type operation struct {
	// result makes the operation's result out of its output, which is whole by
	// then. It is called once when the exec ends, and again after a crash
	// before the end was stored; it reads nothing but the journal.
	result func(ctx context.Context, x sandbox.Exec) (json.RawMessage, error)
	// show, when not nil, completes the result for those who get the output
	// too, with what is in the output and not stored twice.
	show func(x sandbox.Exec, stdout []byte) json.RawMessage
}

// operations are known by the first word of their kind.
type operations map[string]operation

// newOperations returns all that there are.
func newOperations(j *journal.Journals, cells *cell.Reader) operations {
	return operations{
		"git": {
			result: func(ctx context.Context, x sandbox.Exec) (json.RawMessage, error) { return gitResult(ctx, j, x) },
			show:   showPatch,
		},
		"code": {result: cells.Result},
		"packages": {
			result: func(ctx context.Context, x sandbox.Exec) (json.RawMessage, error) { return packagesResult(ctx, j, x) },
		},
	}
}

// of returns the operation of an exec; the zero one where it is none.
func (o operations) of(x sandbox.Exec) operation {
	noun, _, _ := strings.Cut(x.Spec.Kind, ".")
	return o[noun]
}

// resultOf returns the result of a finished exec; nil where it has none.
func (s *Service) resultOf(ctx context.Context, x sandbox.Exec) json.RawMessage {
	o := s.operations.of(x)
	if o.result == nil {
		return nil
	}
	result, err := o.result(ctx, x)
	if err != nil {
		s.log.Warn("make the result of an operation", telemetry.KeyUID, x.Box, telemetry.KeySeq, x.Seq, telemetry.KeyErr, err)
		return nil
	}
	return result
}

// madeOfOutput reports whether the result of an exec is made of its output.
func (o operations) madeOfOutput(x sandbox.Exec) bool { return o.of(x).show != nil }

// shown is the result of an exec beside its output.
func (o operations) shown(x sandbox.Exec, stdout []byte) json.RawMessage {
	if show := o.of(x).show; show != nil && x.Result != nil {
		return show(x, stdout)
	}
	return x.Result
}
