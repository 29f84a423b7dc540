package core

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// operation is what core knows of an exec that is more than a plain command.
type operation struct {
	// result makes the operation's result out of its output, which is whole by
	// then. It is called once when the exec ends, and again after a crash
	// before the end was stored; it asks nobody but the journal.
	result func(s *Service, ctx context.Context, x sandbox.Exec) (json.RawMessage, error)
	// show, when not nil, completes the result for those who get the output
	// too, with what is in the output and not stored twice.
	show func(x sandbox.Exec, stdout []byte) json.RawMessage
}

// operations are known by the first word of their kind.
func operations() map[string]operation {
	return map[string]operation{
		"git":      {result: gitResult, show: showPatch},
		"code":     {result: endOfCode},
		"packages": {result: packagesResult},
	}
}

// resultOf returns the result of a finished exec; nil where it has none.
func (s *Service) resultOf(ctx context.Context, x sandbox.Exec) json.RawMessage {
	noun, _, _ := strings.Cut(x.Spec.Kind, ".")
	o, ok := operations()[noun]
	if !ok {
		return nil
	}
	result, err := o.result(s, ctx, x)
	if err != nil {
		s.log.Warn("make the result of an operation", telemetry.KeyUID, x.Box, telemetry.KeySeq, x.Seq, telemetry.KeyErr, err)
		return nil
	}
	return result
}

// madeOfOutput reports whether the result of an exec is made of its output.
func madeOfOutput(x sandbox.Exec) bool {
	noun, _, _ := strings.Cut(x.Spec.Kind, ".")
	return operations()[noun].show != nil
}

// shown is the result of an exec beside its output.
func shown(x sandbox.Exec, stdout []byte) json.RawMessage {
	noun, _, _ := strings.Cut(x.Spec.Kind, ".")
	if o := operations()[noun]; o.show != nil && x.Result != nil {
		return o.show(x, stdout)
	}
	return x.Result
}
