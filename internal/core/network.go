package core

import (
	"context"

	"github.com/cubbyhq/cubby/internal/egress"
)

// ExplainEgress tells what a sandbox would get that asks for target, as "host"
// or "host:port", and which rule decides. The name is looked up; nothing is
// connected, and the sandbox's history does not have it.
func (s *Service) ExplainEgress(ctx context.Context, id, target string) (egress.Decision, error) {
	b, err := s.find(ctx, id)
	if err != nil {
		return egress.Decision{}, err
	}
	host, port, err := egress.Target(target)
	if err != nil {
		return egress.Decision{}, err
	}
	return s.proxy.Explain(ctx, b.Spec.Network, host, port)
}
