package core

import "context"

// ReapIdle is one turn of the idle loop.
func (s *Service) ReapIdle(ctx context.Context) { s.reapIdle(ctx) }

// Prune is one turn of the prune loop.
func (s *Service) Prune(ctx context.Context) { s.prune(ctx) }

// CloseTrees is the other half of a turn of the idle loop.
func (s *Service) CloseTrees(ctx context.Context) { s.closeTrees(ctx) }
