package live

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"

	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Operation is what is known of an exec that is more than a plain command.
type Operation struct {
	// Result makes the operation's result out of its output, which is whole by
	// then. It is called once when the exec ends, and again after a crash
	// before the end was stored; it reads nothing but the journal.
	Result func(ctx context.Context, x sandbox.Exec) (json.RawMessage, error)
	// Show, when not nil, completes the result for those who get the output
	// too, with what is in the output and not stored twice.
	Show func(x sandbox.Exec, stdout []byte) json.RawMessage
	// Attend, when not nil, is beside an exec of a run for as long as it is
	// carried out in that: from its beginning, and again when the next run or
	// daemon has taken it up. It returns when ctx or the exec ends.
	Attend func(ctx context.Context, r *Run, e *Exec)
}

// Operations are known by the first word of their kind.
type Operations map[string]Operation

// of returns the operation of an exec; the zero one where it is none.
func (o Operations) of(x sandbox.Exec) Operation {
	noun, _, _ := strings.Cut(x.Spec.Kind, ".")
	return o[noun]
}

// resultOf returns the result of a finished exec; nil where it has none.
func (o Operations) resultOf(ctx context.Context, log *slog.Logger, x sandbox.Exec) json.RawMessage {
	result := o.of(x).Result
	if result == nil {
		return nil
	}
	made, err := result(ctx, x)
	if err != nil {
		log.Warn("make the result of an operation", telemetry.KeyUID, x.Box, telemetry.KeySeq, x.Seq, telemetry.KeyErr, err)
		return nil
	}
	return made
}

// madeOfOutput reports whether the result of an exec is made of its output.
func (o Operations) madeOfOutput(x sandbox.Exec) bool { return o.of(x).Show != nil }

// shown is the result of an exec beside its output.
func (o Operations) shown(x sandbox.Exec, stdout []byte) json.RawMessage {
	if show := o.of(x).Show; show != nil && x.Result != nil {
		return show(x, stdout)
	}
	return x.Result
}
