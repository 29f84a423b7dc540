package agent

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store"
)

// Versions returns a page of the versions of an assistant whose metadata has what is asked
// for, the newest first.
func (a *Assistants) Versions(ctx context.Context, id string, metadata map[string]json.RawMessage, offset, limit int) (List[conversation.Assistant], error) {
	of, err := a.Get(ctx, id)
	if err != nil {
		return List[conversation.Assistant]{}, err
	}
	keys, err := a.s.cfg.Store.AssistantVersions(ctx, of.Tenant, of.ID, metadata)
	total := len(keys)
	keys = keys[min(offset, total):]
	keys = keys[:min(limit, len(keys))]
	return List[conversation.Assistant]{total, len(keys), each(ctx, a.s, keys, func(key store.Key) (conversation.Assistant, error) {
		return a.s.cfg.Store.AssistantVersion(ctx, owner(ctx), key.ID, key.Version)
	})}, err
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
