package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"time"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/webhook"
)

// RunEnd is what a webhook is told of a run that has ended.
type RunEnd struct {
	Run        conversation.Run
	ThreadID   string
	Started    time.Time
	Ended      conversation.Ended
	Messages   []conversation.Message // of the state that it left
	Stateless  bool                   // there is no state
	TooLarge   bool                   // there is one, and it is too large to be sent
	PreparedAt time.Time
}

// checkWebhook is Invalid when a run cannot be posted to a URL, and OverQuota when too
// many others of the tenant are not delivered yet.
func (s *Service) checkWebhook(ctx context.Context, url string) error {
	switch {
	case url == "":
		return nil
	case s.cfg.Webhooks == nil:
		return errs.E(errs.Unsupported, "webhook: this server posts nothing")
	}
	if err := s.cfg.Webhooks.Check(url); err != nil {
		return err
	}
	return s.cfg.Webhooks.Admit(ctx, owner(ctx))
}

// messages are what is to be sent when a run ends as it does.
func (s *Service) messagesOf(ctx context.Context, e *execution, ended conversation.Ended) ([]store.WebhookMessage, error) {
	if e.run.Request.Webhook == "" || s.cfg.Webhooks == nil {
		return nil, nil
	}
	run, err := s.cfg.Store.ConversationRun(ctx, e.thread.UID, e.run.ID)
	if err != nil {
		return nil, err
	}
	now := s.cfg.Now()
	end := RunEnd{Run: run, ThreadID: e.thread.ID, Started: run.CreatedAt, Ended: ended, PreparedAt: now}
	if run.Status == conversation.RunRunning {
		end.Started = run.UpdatedAt
	}
	end.Run.Status, end.Run.UpdatedAt = ended.Status, now
	state, err := s.Runs().left(ctx, e.thread, run)
	defer state.Release()
	switch {
	case errors.Is(err, errs.NotFound):
		end.Stateless = true
	case err != nil:
		return nil, err
	default:
		end.Messages, end.Stateless = state.Messages, state.Checkpoint.ID == ""
	}
	body, err := s.cfg.Describe(end)
	if err == nil && len(body) > webhook.MaxBody {
		end.Messages, end.TooLarge = nil, true
		end.Run.Request.Input = nil
		body, err = s.cfg.Describe(end)
	}
	if err != nil {
		return nil, err
	}
	return []store.WebhookMessage{{
		ID: webhook.NewID(), Tenant: e.thread.Tenant, Kind: "run.ended", URL: run.Request.Webhook, Body: body,
		Subject: "/threads/" + url.PathEscape(e.thread.ID) + "/runs/" + url.PathEscape(run.ID),
	}}, nil
}

// failureOf is the error of a run's row; nil when it did not fail.
func failureOf(ended conversation.Ended) (json.RawMessage, error) {
	if ended.Status != conversation.RunFailed {
		return nil, nil
	}
	return json.Marshal(struct {
		Error   string `json:"error"`
		Message string `json:"message"`
	}{ended.Error, ended.Message})
}
