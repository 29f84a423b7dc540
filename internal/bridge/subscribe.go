package bridge

import (
	"context"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// complete passes a completion on.
func (b *bridge) complete(ctx context.Context, req *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
	s, err := b.remote.session(ctx)
	if err != nil {
		return nil, err
	}
	res, err := s.Complete(ctx, &sdk.CompleteParams{Ref: req.Params.Ref, Argument: req.Params.Argument, Context: req.Params.Context})
	return res, b.lost(ctx, s, err)
}

// subscribe passes a subscription on. It holds for as long as the connection to the
// daemon does: that of a running command ends with the command anyway.
func (b *bridge) subscribe(ctx context.Context, req *sdk.SubscribeRequest) error {
	s, err := b.remote.session(ctx)
	if err != nil {
		return err
	}
	return b.lost(ctx, s, s.Subscribe(ctx, &sdk.SubscribeParams{URI: req.Params.URI}))
}

func (b *bridge) unsubscribe(ctx context.Context, req *sdk.UnsubscribeRequest) error {
	s, err := b.remote.session(ctx)
	if err != nil {
		return err
	}
	return b.lost(ctx, s, s.Unsubscribe(ctx, &sdk.UnsubscribeParams{URI: req.Params.URI}))
}

// updated passes on that a resource has changed.
func (b *bridge) updated(ctx context.Context, n *sdk.ResourceUpdatedNotificationRequest) {
	if s := b.server.Load(); s != nil {
		_ = s.ResourceUpdated(ctx, &sdk.ResourceUpdatedNotificationParams{URI: n.Params.URI}) // the client may be gone
	}
}

// lost gives up a connection on which a request was not answered. What the daemon itself
// has answered is passed on.
func (b *bridge) lost(ctx context.Context, s *sdk.ClientSession, err error) error {
	if said := fromDaemon(err); said != nil {
		return said
	}
	if err != nil && ctx.Err() == nil {
		b.remote.drop(s)
	}
	return err
}
