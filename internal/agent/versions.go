package agent

import (
	"context"
	"encoding/json"
	"errors"
	"iter"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
)

// Versions yields the versions of an assistant whose metadata has what is asked for, the
// newest first, each when its turn comes.
func (a *Assistants) Versions(ctx context.Context, id string, metadata map[string]json.RawMessage, offset, limit int) (iter.Seq2[conversation.Assistant, error], error) {
	of, err := a.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	numbers, err := a.s.cfg.Store.AssistantVersions(ctx, of.Tenant, of.ID, metadata)
	if err != nil {
		return nil, err
	}
	numbers = numbers[min(offset, len(numbers)):]
	numbers = numbers[:min(limit, len(numbers))]
	return func(yield func(conversation.Assistant, error) bool) {
		for _, n := range numbers {
			v, err := a.s.cfg.Store.AssistantVersion(ctx, of.Tenant, of.ID, n)
			if errors.Is(err, errs.NotFound) {
				continue // it went meanwhile
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
	}, nil
}

// Use makes a version of an assistant the one that runs begin with.
func (a *Assistants) Use(ctx context.Context, id string, version int) (conversation.Assistant, error) {
	was, err := a.Get(ctx, id)
	if err != nil {
		return was, err
	}
	used, err := a.s.cfg.Store.UseAssistantVersion(ctx, was.Tenant, was.ID, version)
	if errors.Is(err, errs.NotFound) {
		return used, errs.E(errs.NotFound, "Assistant version not found").Hint("the one in use is %d; versions lists them", was.Version)
	}
	return used, err
}
